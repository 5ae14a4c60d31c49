# BUILD is installed below SCRATCH and moved; the consumer must find, build and run with nothing but that.
file(REMOVE_RECURSE ${SCRATCH})
set(prefix "${SCRATCH}/a prefix")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(JOIN " " command ${ARGV})
  message("$ ${command}\n${out}")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "status ${status}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${SCRATCH}/installed)
file(RENAME ${SCRATCH}/installed ${prefix})

# Nothing installed may point back into the source or build tree.
file(GLOB_RECURSE texts "${prefix}/*.cmake" "${prefix}/*.h")
foreach(file IN LISTS texts)
  file(READ ${file} text)
  foreach(tree IN ITEMS ${SOURCE} ${BUILD})
    string(FIND "${text}" "${tree}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} mentions ${tree}")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${SCRATCH}/consumer -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=${CONFIG} "-DCMAKE_PREFIX_PATH=${prefix}")
run(${CMAKE_COMMAND} --build ${SCRATCH}/consumer --config ${CONFIG})
run(${SCRATCH}/consumer/consumer)
# mean(x^2) = 25, so y = x w / 5, exactly.
if(NOT out MATCHES "\n 0.2 -0.4 1.4 0.7\n")
  message(FATAL_ERROR "the golden values are not 0.2 -0.4 1.4 0.7")
endif()
run("${prefix}/bin/assay" --version)
if(NOT EXISTS "${prefix}/share/assay/report.schema.json")
  message(FATAL_ERROR "the schema of reports is not installed")
endif()

# The worked example, which finds GoogleTest too.
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/kernel_test -B ${SCRATCH}/kernel_test -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=${CONFIG} "-DCMAKE_PREFIX_PATH=${prefix}")
run(${CMAKE_COMMAND} --build ${SCRATCH}/kernel_test --config ${CONFIG})
run(${SCRATCH}/kernel_test/kernel_test)
if(NOT out MATCHES "PASSED  . 2 tests")
  message(FATAL_ERROR "the example's tests did not pass")
endif()

# The program of docs/cpp.md, and what the page says that it prints.
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/arrays -B ${SCRATCH}/arrays -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=${CONFIG} "-DCMAKE_PREFIX_PATH=${prefix}")
run(${CMAKE_COMMAND} --build ${SCRATCH}/arrays --config ${CONFIG})
run(${SCRATCH}/arrays/arrays)
file(READ ${SOURCE}/docs/cpp.md page)
file(READ ${SOURCE}/examples/arrays/main.cpp program)
foreach(shown IN ITEMS "```cpp\n${program}```" "```\n${out}```")
  string(FIND "${page}" "${shown}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "docs/cpp.md does not show\n${shown}")
  endif()
endforeach()
