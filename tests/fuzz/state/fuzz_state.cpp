// Any bytes as state.pb or MANIFEST: refused with a CheckpointError, or read and written back
// alike.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "dtrain/core/base/error.h"
#include "dtrain/core/checkpoint/manifest.h"
#include "dtrain/core/checkpoint/run_state.h"

namespace {

void check_state(std::string_view bytes) {
  try {
    const dtrain::checkpoint::RunState state = dtrain::parse_run_state(bytes, "fuzz");
    const std::string written = dtrain::serialize_run_state(state, "fuzz");
    const auto again = dtrain::parse_run_state(written, "fuzz");
    if (again.SerializeAsString() != state.SerializeAsString()) std::abort();
    if (state.step() < 0 || state.step() > state.batch()) std::abort();
  } catch (const dtrain::CheckpointError&) {
  }
}

// A state that is accepted.
std::string good_state() {
  dtrain::checkpoint::RunState state;
  state.set_step(1);
  state.set_batch(2);
  state.set_epoch(0);
  state.set_batch_in_epoch(2);
  state.set_samples_seen(64);
  state.set_run_id("r");
  state.set_validation("{}");
  state.mutable_best()->set_loss(0.5);
  return state.SerializeAsString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_state(bytes);
  // Messages after one another merge: so every field is reached in a state that is else accepted.
  static const std::string good = good_state();
  check_state(good + std::string(bytes));
  try {
    const dtrain::Manifest manifest = dtrain::parse_manifest(bytes, "fuzz");
    if (dtrain::parse_manifest(to_text(manifest), "fuzz") != manifest) std::abort();
  } catch (const dtrain::CheckpointError&) {
  }
  // The digest of a manifest cannot be guessed: seal the text, so that its lines are reached.
  const dtrain::FileDigest seal{size, dtrain::hash_hex(std::as_bytes(std::span(bytes)))};
  const std::string sealed =
      std::string(bytes) + "MANIFEST " + std::to_string(seal.size) + " " + seal.digest + "\n";
  try {
    const dtrain::Manifest manifest = dtrain::parse_manifest(sealed, "fuzz");
    for (const auto& [name, file] : manifest) {
      if (name.find('/') != name.npos || name.empty() || name.front() == '.') std::abort();
    }
  } catch (const dtrain::CheckpointError&) {
  }
  return 0;
}
