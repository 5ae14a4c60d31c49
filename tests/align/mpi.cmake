# Tests under mpirun.
find_package(MPI REQUIRED COMPONENTS C)
find_package(Python3 COMPONENTS Interpreter)
if(NOT MPIEXEC_EXECUTABLE)
  add_test(NAME align.mpi COMMAND ${CMAKE_COMMAND} -E echo "skipped: mpirun is not installed")
  set_tests_properties(align.mpi PROPERTIES SKIP_REGULAR_EXPRESSION skipped)
  return()
endif()

add_executable(test_align_mpi communicator_test.cpp ranks_as_processes.cpp)
target_link_libraries(test_align_mpi PRIVATE assay::mpi GTest::gmock)
assay_flags(test_align_mpi)
set(tests "")
foreach(processes 2 4 8)
  add_test(NAME align.mpi.${processes}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${processes} $<TARGET_FILE:test_align_mpi> --gtest_brief=1)
  list(APPEND tests align.mpi.${processes})
endforeach()

add_executable(mpi_trouble mpi_trouble.cpp)
target_link_libraries(mpi_trouble PRIVATE assay::mpi MPI::MPI_C)
target_compile_definitions(mpi_trouble PRIVATE OMPI_SKIP_MPICXX)
assay_flags(mpi_trouble)
if(Python3_FOUND)
  add_test(NAME align.mpi.trouble COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/mpi_trouble_test.py)
  list(APPEND tests align.mpi.trouble)
endif()

# CI runs as root, and has fewer cores than processes: Open MPI 4 and 5 are told by other names. On one machine no
# network is needed, of which 5 complains where it is odd. Open MPI leaves memory behind.
set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=^tcp
  OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
  ASAN_OPTIONS=detect_leaks=0 "MPIRUN=${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG}" TROUBLE=$<TARGET_FILE:mpi_trouble>)
set_tests_properties(${tests} PROPERTIES LABELS align TIMEOUT 300 ENVIRONMENT "${environment}")
