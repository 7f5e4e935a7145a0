#include "dtrain/launcher/main.h"

int main(int argc, char** argv) {
  return dtrain::run_main(argc, argv);
}
