#include "program.h"

int main(int argc, char** argv) {
  return assay::run_program({argv, static_cast<std::size_t>(argc)});
}
