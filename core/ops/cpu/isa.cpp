#include "dtrain/core/ops/isa.h"

#include <array>
#include <string_view>

#include <dnnl.hpp>
#include <hwy/highway.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

struct Isa {
  std::string_view name;
  dnnl::cpu_isa dnnl;
  std::int64_t highway;  // its best target
};

// From the least to the most capable; each contains the ones before it.
constexpr std::array<Isa, 5> known_isas{{
    {"sse41", dnnl::cpu_isa::sse41, HWY_SSE4},
    {"avx2", dnnl::cpu_isa::avx2, HWY_AVX2},
    {"avx512", dnnl::cpu_isa::avx512_core, HWY_AVX3_DL},
    {"avx512_bf16", dnnl::cpu_isa::avx512_core_bf16, HWY_AVX3_DL},
    {"amx", dnnl::cpu_isa::avx512_core_amx, HWY_AVX3_DL},
}};

// oneDNN's names are sets of features as bits: the best of known_isas within what is in force.
std::size_t best_within(dnnl::cpu_isa in_force) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < known_isas.size(); ++i) {
    const auto features = static_cast<unsigned>(known_isas[i].dnnl);
    if ((static_cast<unsigned>(in_force) & features) == features) best = i;
  }
  return best;
}

std::string names_up_to(std::size_t last) {
  std::string names(known_isas[0].name);
  for (std::size_t i = 1; i <= last; ++i) names += fmt::format(", {}", known_isas[i].name);
  return names;
}

}  // namespace

std::string select_cpu_isa(const std::string& cpu_isa) {
  // oneDNN takes a limit only before anything has asked it what is in force.
  if (cpu_isa == "auto") {
    const Isa& found = known_isas[best_within(dnnl::get_effective_cpu_isa())];
    hwy::DisableTargets(found.highway - 1);
    return std::string(found.name);
  }
  std::size_t wanted = 0;
  while (wanted < known_isas.size() && known_isas[wanted].name != cpu_isa) ++wanted;
  if (wanted == known_isas.size()) {
    throw ConfigError(fmt::format("cpu_isa: '{}' is not an instruction set; one of auto, {}",
                                  cpu_isa, names_up_to(known_isas.size() - 1)));
  }
  // Refused after the first time, and after the first operator.
  const bool limited = dnnl::set_max_cpu_isa(known_isas[wanted].dnnl) == dnnl::status::success;
  const std::size_t in_force = best_within(dnnl::get_effective_cpu_isa());
  if (limited && in_force < wanted) {
    throw ConfigError(
        fmt::format("cpu_isa: this machine has no {}; it has {} (auto takes the last)", cpu_isa,
                    names_up_to(in_force)));
  }
  DTRAIN_CHECK(in_force == wanted, "cpu_isa {} asked for after {} was chosen or used", cpu_isa,
               known_isas[in_force].name);
  // Highway's better targets have lower bits.
  hwy::DisableTargets(known_isas[wanted].highway - 1);
  return cpu_isa;
}

}  // namespace dtrain
