// What every benchmark program needs around its measurement.
#pragma once

namespace dtrain {

// Keeps the calling thread on the n-th processor that it may use; does nothing if there are fewer.
void pin_to_processor(int n);

// main() of a program: runs `body`, and prints an error behind the program's name. Exit code 1
// then.
int run_program(const char* name, int (*body)(int argc, char** argv), int argc, char** argv);

}  // namespace dtrain
