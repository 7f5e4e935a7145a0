#include "program.h"

#include <exception>
#include <iostream>
#include <sched.h>

namespace dtrain {

void pin_to_processor(int n) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &usable) || n-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

int run_program(const char* name, int (*body)(int argc, char** argv), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << name << ": " << e.what() << "\n";
    return 1;
  }
}

}  // namespace dtrain
