# assay_library(NAME SOURCES.. PUBLIC_HEADERS HEADERS..): one static library for one folder; the headers are installed.
# Its headers are seen as "assay/NAME/x.h" through a link of its own in the build tree, so a folder can include
# only its own headers and those of the targets it links: the arrows of the design are enforced by the compiler.
function(assay_library name)
  set(target assay_${name})
  cmake_parse_arguments(arg "" "" "PUBLIC_HEADERS" ${ARGN})
  add_library(${target} ${arg_UNPARSED_ARGUMENTS})
  add_library(assay::${name} ALIAS ${target})
  set(include_dir ${PROJECT_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${include_dir}/assay)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${include_dir}/assay/${name} SYMBOLIC)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${include_dir}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  assay_flags(${target})
  assay_precompile(${target})
  install(TARGETS ${target} EXPORT assay_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(header ${arg_PUBLIC_HEADERS})
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay/${name}/${folder})
  endforeach()
endfunction()

# Headers that most files include are parsed once for each target: half of what a file costs is headers. A file still
# includes what it uses: CMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows where one does not.
function(assay_precompile target)
  target_precompile_headers(${target} PRIVATE <algorithm> <cmath> <filesystem> <functional> <map> <memory> <optional>
                                              <set> <span> <string> <vector> <fmt/format.h> ${ARGN})
endfunction()

# -Wno-restrict: g++ 12 warns falsely inside std::string (GCC bug 105651).
# The arithmetic must be the one that is written: no contraction into FMA, no fast-math, ever.
function(assay_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -ffp-contract=off
                                           $<$<BOOL:${ASSAY_WERROR}>:-Werror> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
  if(ASSAY_SANITIZE)
    # g++ warns falsely of uninitialised variables in instrumented code (its manual says so of -fsanitize).
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_compile_options(${target} PUBLIC -fsanitize=${ASSAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${ASSAY_SANITIZE})
  endif()
endfunction()
