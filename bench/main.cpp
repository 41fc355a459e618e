// One main for all programs; WEFT_PATTERN names the pattern.
#include "bench/run.hpp"

int main(int argc, char** argv) { return weft::run_program(argc, argv, WEFT_PATTERN); }
