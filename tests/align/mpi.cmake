# Tests under mpirun. CI runs as root, and has fewer cores than processes.
find_package(MPI REQUIRED COMPONENTS C)
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                    OMPI_MCA_rmaps_base_oversubscribe=1
                    # Open MPI leaves memory behind.
                    ASAN_OPTIONS=detect_leaks=0)
add_executable(test_align_mpi communicator_test.cpp ranks_as_processes.cpp)
target_link_libraries(test_align_mpi PRIVATE assay::align_mpi GTest::gmock)
assay_flags(test_align_mpi)
foreach(processes 2 4 8)
  add_test(NAME align.mpi.${processes}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${processes} $<TARGET_FILE:test_align_mpi> --gtest_brief=1)
  set_tests_properties(align.mpi.${processes} PROPERTIES LABELS align TIMEOUT 300 PROCESSORS 2
                       ENVIRONMENT "${mpi_environment}")
endforeach()
