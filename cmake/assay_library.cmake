# assay_library(NAME SOURCES.. PUBLIC_HEADERS HEADERS.. FLOORS ..): one static library for one folder; the headers are
# installed. Its headers are seen as "assay/NAME/x.h" through a link of its own in the build tree, so a folder can include
# only its own headers and those of the targets it links: the arrows of the design are enforced by the compiler.
# FLOORS, lowest first, are subfolders made with assay_floor: their objects become part of the library.
function(assay_library name)
  cmake_parse_arguments(arg "" "" "PUBLIC_HEADERS;FLOORS" ${ARGN})
  set(target assay_${name})
  add_library(${target} ${arg_UNPARSED_ARGUMENTS})
  add_library(assay::${name} ALIAS ${target})
  assay_headers(${target} ${name} "")
  target_include_directories(${target} PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  assay_flags(${target})
  foreach(floor ${arg_FLOORS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${floor}>)
  endforeach()
  install(TARGETS ${target} EXPORT assay_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(header ${arg_PUBLIC_HEADERS})
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay/${name}/${folder})
  endforeach()
endfunction()

# assay_floor(LIBRARY FLOOR SOURCES.. ON FLOORS.. USES TARGETS..): a subfolder of a library. Its sources see its own
# headers, those of the floors that it stands on, and what these and it use; a header of a higher floor is not found.
function(assay_floor library floor)
  cmake_parse_arguments(arg "" "" "ON;USES" ${ARGN})
  set(target assay_${library}_${floor})
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${floor}/ OUTPUT_VARIABLE sources)
  list(TRANSFORM arg_ON PREPEND assay_${library}_ OUTPUT_VARIABLE lower)
  add_library(${target} OBJECT ${sources})
  assay_headers(${target} ${library} ${floor})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  assay_flags(${target})
  target_link_libraries(${target} PUBLIC ${lower} ${arg_USES})
endfunction()

# The headers of a folder as "assay/LIBRARY/FLOOR/x.h".
function(assay_headers target library floor)
  set(folder ${PROJECT_BINARY_DIR}/include/${target})
  cmake_path(APPEND link ${folder} assay ${library} ${floor})
  cmake_path(GET link PARENT_PATH above)
  file(MAKE_DIRECTORY ${above})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${floor} ${link} SYMBOLIC)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${folder}>)
endfunction()

# -Wno-restrict: g++ 12 warns falsely inside std::string (GCC bug 105651).
# The arithmetic must be the one that is written: no contraction into FMA, no fast-math, ever.
function(assay_flags target)
  # Sections of their own, so that a program or extension that uses a part is linked without the rest.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -ffp-contract=off -ffunction-sections -fdata-sections
                                           $<$<BOOL:${ASSAY_WERROR}>:-Werror> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
  if(ASSAY_SANITIZE)
    # g++ warns falsely of uninitialised variables in instrumented code (its manual says so of -fsanitize).
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_compile_options(${target} PUBLIC -fsanitize=${ASSAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${ASSAY_SANITIZE})
  endif()
endfunction()

# For targets that are built more often than they compute: reports, the command line, tests.
function(assay_quick_to_build)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# For targets in which sanitized tests spend their time. (The rest is at -Og: a third of the time to build.)
function(assay_quick_to_run)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O2>)
  endforeach()
endfunction()
