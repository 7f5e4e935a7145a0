#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

using TargetsByName = std::map<std::string_view, const TensorTarget*>;

// Names that a message lists of each kind.
constexpr std::size_t listed_names = 5;

class NameList {
 public:
  void add(std::string text) {
    if (count_++ < listed_names) {
      if (!text_.empty()) text_ += ", ";
      text_ += std::move(text);
    }
  }
  std::size_t count() const { return count_; }
  // "2 missing ('a', 'b')", or "0 missing".
  std::string describe(std::string_view what) const {
    if (count_ == 0) return fmt::format("0 {}", what);
    const std::string more =
        count_ > listed_names ? fmt::format(", and {} more", count_ - listed_names) : "";
    return fmt::format("{} {} ({}{})", count_, what, text_, more);
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

// A tensor of the file, and what it is called here.
struct NamedEntry {
  const TensorEntry* entry;
  std::string name;
};

// Those that `naming` does not leave out.
std::vector<NamedEntry> named_entries(const SafetensorsFile& file, const TensorNaming& naming) {
  std::vector<NamedEntry> entries;
  for (const TensorEntry& entry : file.entries()) {
    std::string name = naming ? naming(entry.name) : entry.name;
    if (!naming || !name.empty()) entries.push_back({&entry, std::move(name)});
  }
  return entries;
}

std::size_t count_matches(std::span<const NamedEntry> entries, const TargetsByName& targets,
                          std::size_t stripped) {
  return static_cast<std::size_t>(std::ranges::count_if(entries, [&](const NamedEntry& entry) {
    return targets.contains(std::string_view(entry.name).substr(stripped));
  }));
}

// The part of the names, up to a dot and shared by all of the file, without which most of them
// match; empty where the names match as they are at least as well. Wrappers of a model put such
// parts before the names.
std::string foreign_prefix(std::span<const NamedEntry> entries, const TargetsByName& targets) {
  if (entries.empty()) return "";
  std::string_view common = entries.front().name;
  for (const NamedEntry& entry : entries) {
    const auto [end, other] = std::ranges::mismatch(common, entry.name);
    common = common.substr(0, static_cast<std::size_t>(end - common.begin()));
  }
  std::string_view best;
  std::size_t best_matches = count_matches(entries, targets, 0);
  for (std::size_t dot = common.find('.'); dot != common.npos; dot = common.find('.', dot + 1)) {
    const std::size_t matches = count_matches(entries, targets, dot + 1);
    if (matches > best_matches) {
      best = common.substr(0, dot + 1);
      best_matches = matches;
    }
  }
  return std::string(best);
}

bool can_widen(DType from, DType to) {
  return to == DType::f32 && (from == DType::f16 || from == DType::bf16);
}

template <typename Half>
void widen(std::span<const std::byte> from, std::span<std::byte> to) {
  for (std::size_t i = 0; i < from.size() / sizeof(Half); ++i) {
    Half half;
    std::memcpy(&half, from.data() + i * sizeof(Half), sizeof half);
    const float value = to_float(half);
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  }
}

void load_one(const SafetensorsFile& file, const TensorEntry& entry, const TensorTarget& target) {
  if (entry.dtype == target.dtype) {
    file.read(entry, target.bytes);
    return;
  }
  std::vector<std::byte> halves(entry.end - entry.begin);
  file.read(entry, halves);
  if (entry.dtype == DType::bf16) {
    widen<bfloat16>(halves, target.bytes);
  } else {
    widen<float16>(halves, target.bytes);
  }
}

struct Match {
  const TensorEntry* entry;
  const TensorTarget* target;
};

// What of a file goes where.
struct Matches {
  std::vector<Match> list;
  std::vector<Match> again;  // other names of the same targets
  std::string prefix;        // of the file's names, left out
  std::string differences;   // empty if every name of either side has its match
};

// Throws as load_tensors does.
Matches match(const SafetensorsFile& file, std::span<const TensorTarget> targets, bool strict,
              const TensorNaming& naming) {
  TargetsByName by_name;
  for (const TensorTarget& target : targets) {
    DTRAIN_CHECK(by_name.emplace(target.name, &target).second, "two targets are named {}",
                 target.name);
  }
  Matches matches;
  const std::vector<NamedEntry> entries = named_entries(file, naming);
  matches.prefix = foreign_prefix(entries, by_name);
  NameList unexpected, misshaped, missing;
  for (const auto& [from, name] : entries) {
    const TensorEntry& entry = *from;
    const std::string_view own = std::string_view(name).substr(matches.prefix.size());
    const auto found = by_name.find(own);
    if (found == by_name.end()) {
      const auto first = std::ranges::find_if(
          matches.list, [&](const Match& other) { return other.target->name == own; });
      if (first != matches.list.end() && entry.dtype == first->entry->dtype &&
          entry.shape == first->entry->shape) {
        matches.again.push_back({&entry, first->target});
      } else {
        unexpected.add(quoted_tensor_name(entry.name));
      }
      continue;
    }
    const TensorTarget& target = *found->second;
    by_name.erase(found);
    if (entry.shape == target.shape &&
        (entry.dtype == target.dtype || can_widen(entry.dtype, target.dtype))) {
      matches.list.push_back({&entry, &target});
    } else {
      misshaped.add(fmt::format("{}: file {} {}, model {} {}", quoted_tensor_name(target.name),
                                to_string(entry.dtype), to_string(entry.shape),
                                to_string(target.dtype), to_string(target.shape)));
    }
  }
  for (const auto& [name, target] : by_name) missing.add(quoted_tensor_name(name));

  const std::string differences = fmt::format(
      "{}, {}, {}", missing.describe("missing"), unexpected.describe("unexpected"),
      misshaped.describe(misshaped.count() == 1 ? "shape mismatch" : "shape mismatches"));
  const bool all = missing.count() + unexpected.count() + misshaped.count() == 0;
  if (matches.list.empty() && !(all && targets.empty())) {
    throw CheckpointError(file.path().string(), "no tensor matches the model: " + differences);
  }
  if (strict && !all) {
    throw CheckpointError(file.path().string(),
                          fmt::format("tensors do not match the model: {}; strict: false loads the "
                                      "{} that match",
                                      differences, matches.list.size()));
  }
  if (!all) matches.differences = differences;
  return matches;
}

// Tied weights that a file holds twice must be equal.
void check_repeated(const SafetensorsFile& file, const Matches& matches) {
  for (const Match& other : matches.again) {
    const TensorEntry& first = *std::ranges::find_if(matches.list, [&](const Match& match) {
                                  return match.target == other.target;
                                })->entry;
    std::vector<std::byte> a(first.end - first.begin), b(other.entry->end - other.entry->begin);
    file.read(first, a);
    file.read(*other.entry, b);
    if (a != b) {
      throw CheckpointError(
          file.path().string(),
          fmt::format("tensors {} and {} differ, but the model ties them: they are one tensor",
                      quoted_tensor_name(first.name), quoted_tensor_name(other.entry->name)));
    }
  }
}

}  // namespace

int load_tensors(const fs::path& safetensors, std::span<const TensorTarget> targets, bool strict,
                 const TensorNaming& naming) {
  for (const TensorTarget& target : targets) {
    DTRAIN_CHECK(target.bytes.size() ==
                     static_cast<std::uint64_t>(target.shape.elements()) * size_of(target.dtype),
                 "target {} of shape {} has {} bytes", target.name, to_string(target.shape),
                 target.bytes.size());
  }
  const SafetensorsFile file(safetensors);
  const Matches matches = match(file, targets, strict, naming);
  check_repeated(file, matches);
  if (!matches.prefix.empty()) {
    spdlog::info("{}: names are read without their prefix '{}'", safetensors.string(),
                 matches.prefix);
  }
  for (const Match& each : matches.list) load_one(file, *each.entry, *each.target);
  if (!matches.differences.empty()) {
    spdlog::warn("{}: loaded {} of {} tensors; the rest keep their initial values: {}",
                 safetensors.string(), matches.list.size(), targets.size(), matches.differences);
  }
  return static_cast<int>(matches.list.size());
}

void check_tensors(const fs::path& safetensors, std::span<const TensorTarget> targets, bool strict,
                   const TensorNaming& naming) {
  const SafetensorsFile file(safetensors);
  check_repeated(file, match(file, targets, strict, naming));
}

}  // namespace dtrain
