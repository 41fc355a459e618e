#include "bench/pairs_run.hpp"

int main(int argc, char** argv) { return weft::run_pairs(argc, argv); }
