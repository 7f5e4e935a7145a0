// The choice holds for a process, so each test makes it in a process of its own.
#include "dtrain/core/ops/isa.h"

#include <cstdio>
#include <cstdlib>

#include "support.h"

#include "dtrain/core/base/error.h"
#include "dtrain/core/ops/conv.h"

namespace dtrain {
namespace {

const std::vector<std::string> names{"sse41", "avx2", "avx512", "avx512_bf16", "amx"};

// Exits with 0 if `what` throws E whose text contains `part`, or with 1 and the text.
template <class E, class What>
[[noreturn]] void exit_expecting(const What& what, const std::string& part) {
  try {
    what();
    std::fputs("nothing was thrown\n", stderr);
  } catch (const E& error) {
    if (std::string(error.what()).find(part) != std::string::npos) std::exit(0);
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(1);
}

void in_own_process(const std::function<void()>& body) {
  EXPECT_EXIT(
      {
        try {
          body();
          std::exit(0);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::exit(1);
        }
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(IsaTest, AutoIsOneOfTheNamesAndCanBeAskedForByIt) {
  in_own_process([] {
    const std::string found = select_cpu_isa("auto");
    if (std::ranges::find(names, found) == names.end()) std::exit(1);
    if (select_cpu_isa("auto") != found || select_cpu_isa(found) != found) std::exit(1);
  });
}

TEST(IsaTest, LimitsWhatTheMachineHas) {
  in_own_process([] {
    if (select_cpu_isa("sse41") != "sse41" || select_cpu_isa("auto") != "sse41") std::exit(1);
    // Kernels for eight channels, not sixteen, are in force.
    if (ops::conv2d_output_layout({1, 8, 8, 16}, {16, 16, 3, 3}, {}).channel_block != 8) {
      std::exit(1);
    }
  });
}

TEST(IsaTest, ASecondChoiceIsRefused) {
  in_own_process([] {
    select_cpu_isa("sse41");
    exit_expecting<InternalError>([] { select_cpu_isa("avx2"); }, "sse41");
  });
}

TEST(IsaTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  in_own_process([] {
    exit_expecting<ConfigError>([] { select_cpu_isa("mmx"); },
                                "auto, sse41, avx2, avx512, avx512_bf16, amx");
  });
}

// What the machine has decides which half of this says something.
TEST(IsaTest, WhatTheMachineLacksIsRefusedWithWhatItHas) {
  in_own_process([] {
    try {
      if (select_cpu_isa("amx") != "amx") std::exit(1);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const std::string best = select_cpu_isa("auto");
      if (text.find("no amx") == std::string::npos || text.find(best) == std::string::npos) {
        std::exit(1);
      }
    }
  });
}

}  // namespace
}  // namespace dtrain
