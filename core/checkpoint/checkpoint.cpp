#include "dtrain/core/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>

#include <spdlog/spdlog.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/checkpoint/manifest.h"
#include "dtrain/core/checkpoint/run_state.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view name_stem = "step-";

// Neither grows with the model.
constexpr std::uint64_t longest_manifest = 64 << 10;
constexpr std::uint64_t longest_state = 16 << 20;

std::string read_small_file(const fs::path& path, std::uint64_t limit) {
  std::uint64_t size = 0;
  const UniqueFd fd = open_regular_file(path, &size);
  if (size > limit) {
    throw CheckpointError(path.string(),
                          fmt::format("too large: {} bytes, the limit is {}", size, limit));
  }
  std::string content(size, '\0');
  read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(content)), path);
  return content;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool has_manifest(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / manifest_name, ignored);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", name_stem, step);
}

std::optional<std::int64_t> step_of_checkpoint_name(std::string_view name) {
  if (!name.starts_with(name_stem)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] =
      std::from_chars(name.data() + name_stem.size(), name.data() + name.size(), step);
  if (error != std::errc() || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::int64_t> list_checkpoints(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = step_of_checkpoint_name(entry->path().filename().native());
    if (step && has_manifest(entry->path())) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError(folder.string(), "cannot list: " + errno_text(error.value()));
  }
  std::ranges::sort(steps);
  return steps;
}

bool is_checkpoint_folder(const fs::path& folder) {
  if (!is_folder(folder)) return false;
  try {
    const fs::path manifest = folder / manifest_name;
    parse_manifest(read_small_file(manifest, longest_manifest), manifest.string());
    return true;
  } catch (const CheckpointError&) {
    // Perhaps damaged, or not written yet.
  }
  try {
    read_run_state(folder);
    return true;
  } catch (const CheckpointError&) {
    // The same.
  }
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != manifest_name && name != "state.pb" && name != "model.safetensors" &&
        name != "optimizer.safetensors" && name != average_name) {
      return false;
    }
  }
  return !error;
}

std::string newest_run_id(const fs::path& folder) {
  std::int64_t newest = -1;
  std::string id;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = step_of_checkpoint_name(entry->path().filename().native());
    if (!step || *step <= newest) continue;
    try {
      const std::string found = read_run_state(entry->path()).run_id();
      if (found.empty()) continue;
      newest = *step;
      id = found;
    } catch (const CheckpointError&) {
      // An older one may tell.
    }
  }
  return id;
}

void verify_checkpoint(const fs::path& checkpoint) {
  const fs::path manifest_path = checkpoint / manifest_name;
  const Manifest manifest =
      parse_manifest(read_small_file(manifest_path, longest_manifest), manifest_path.string());
  for (const char* required : {"model.safetensors", "optimizer.safetensors", "state.pb"}) {
    if (!manifest.contains(required)) {
      throw CheckpointError(manifest_path.string(), fmt::format("{} is not listed", required));
    }
  }
  // Sizes first: they cost nothing, and most damage shows in them.
  for (const auto& [name, expected] : manifest) {
    std::uint64_t size = 0;
    open_regular_file(checkpoint / name, &size);
    if (size != expected.size) {
      throw CheckpointError(
          (checkpoint / name).string(),
          fmt::format("damaged: {} bytes, MANIFEST says {}", size, expected.size));
    }
  }
  for (const auto& [name, expected] : manifest) {
    const FileDigest found = digest_file(checkpoint / name);
    if (found != expected) {
      throw CheckpointError(
          (checkpoint / name).string(),
          fmt::format("damaged: digest {}, MANIFEST says {}", found.digest, expected.digest));
    }
  }
  const std::int64_t step = read_run_state(checkpoint).step();
  const auto named = step_of_checkpoint_name(checkpoint.filename().native());
  if (named && *named != step) {
    throw CheckpointError(
        (checkpoint / "state.pb").string(),
        fmt::format("holds step {}: the folder was renamed, or copied over another", step));
  }
}

std::optional<fs::path> find_newest_checkpoint(const fs::path& folder) {
  std::vector<std::int64_t> steps = list_checkpoints(folder);
  for (; !steps.empty(); steps.pop_back()) {
    const fs::path checkpoint = folder / checkpoint_name(steps.back());
    try {
      verify_checkpoint(checkpoint);
      return checkpoint;
    } catch (const CheckpointError& error) {
      spdlog::warn("checkpoint of step {} is passed over: {}", steps.back(), error.what());
    }
  }
  return std::nullopt;
}

fs::path resolve_checkpoint(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw CheckpointError(path.string(), "no such checkpoint or run");
  }
  if (!is_folder(path)) {
    throw CheckpointError(path.string(), "is a file, but a checkpoint or a run is a folder");
  }
  // A slash at the end would leave the folder without a name.
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  if (has_manifest(folder)) {
    verify_checkpoint(folder);
    return folder;
  }
  const fs::path checkpoints = is_folder(folder / "checkpoints") ? folder / "checkpoints" : folder;
  if (auto newest = find_newest_checkpoint(checkpoints)) return *newest;
  if (fs::exists(folder / "state.pb", error)) {
    throw CheckpointError(folder.string(), "incomplete checkpoint: it has no MANIFEST");
  }
  throw CheckpointError(folder.string(), "there is no complete checkpoint in it");
}

fs::path resolve_weights(const fs::path& path, bool averaged) {
  if (!is_folder(path)) return path;
  const fs::path checkpoint = resolve_checkpoint(path);
  std::error_code ignored;
  const bool has_averages = averaged && fs::exists(checkpoint / average_name, ignored);
  return checkpoint / (has_averages ? average_name : "model.safetensors");
}

checkpoint::RunState read_run_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "state.pb";
  return parse_run_state(read_small_file(path, longest_state), path.string());
}

}  // namespace dtrain
