// What the machine can do at most: multiply-adds of floats in registers. JSON on standard output.
//
//   bench_peak [--threads N]
#include <cstdio>

#include "machine_peak.h"
#include "program.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace dtrain {
namespace {

int run(int argc, char** argv) {
  int threads = 1;
  CLI::App app("Peak of multiply-adds");
  app.add_option("--threads", threads, "at once")->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  const nlohmann::ordered_json result{{"threads", threads},
                                      {"gflops", measure_peak_gflops(threads)}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_program("bench_peak", dtrain::run, argc, argv);
}
