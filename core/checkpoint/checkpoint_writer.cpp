#include <algorithm>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <stdio.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/checkpoint/manifest.h"
#include "dtrain/core/checkpoint/retention.h"
#include "dtrain/core/checkpoint/run_state.h"

// Note [Order of a save]: the files are written and synced; their folder, step-N.tmp, is synced, so
// that it holds them; it is renamed to step-N; the parent is synced, so that the name lasts. Only
// then is the save acknowledged, and only then are older checkpoints removed. Removal goes the same
// way back: renamed to .tmp, parent synced, emptied. So whatever bears a final name is whole, at
// every moment and after every crash.

namespace dtrain {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view temporary_suffix = ".tmp";

fs::path temporary_of(const fs::path& checkpoint) {
  return checkpoint.string() + std::string(temporary_suffix);
}

// Runs `body`, and reports what the file system throws as CheckpointError.
template <typename Body>
auto as_checkpoint_error(const fs::path& path, Body body) {
  try {
    return body();
  } catch (const fs::filesystem_error& error) {
    const fs::path& place = error.path1().empty() ? path : error.path1();
    throw CheckpointError(place.string(), "cannot write: " + write_trouble(error.code().value()));
  } catch (const std::system_error& error) {
    throw CheckpointError(path.string(), error.what());
  }
}

bool verifies(const fs::path& checkpoint) {
  try {
    verify_checkpoint(checkpoint);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) spdlog::warn("{}: cannot remove: {}", path.string(), errno_text(error.value()));
}

// One writer per folder: a second one would take the first one's .tmp for a crash's. The lock ends
// with the process, however it ends.
UniqueFd lock_folder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw CheckpointError(folder.string(), "cannot open: " + errno_text(errno));
  // Network file systems may not lock folders: then there is no guard, but a run.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw CheckpointError(folder.string(),
                          "another process writes checkpoints here: choose another output");
  }
  return fd;
}

void remove_left_overs(const fs::path& folder) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == temporary_suffix && step_of_checkpoint_name(path.stem().native())) {
      left.push_back(path);
    }
  }
  for (const fs::path& path : left) {
    spdlog::info("{}: removed; a run ended while it was written", path.string());
    remove_folder(path);
  }
}

std::vector<NamedTensor> named(const std::vector<CheckpointSnapshot::OwnedTensor>& tensors) {
  std::vector<NamedTensor> views;
  views.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.contents()});
  }
  return views;
}

FileDigest write_text(const fs::path& path, std::string_view text) {
  DigestFileWriter file(path, text.size());
  file.write(text);
  return file.finish();
}

std::uint64_t tensor_bytes(const CheckpointSnapshot& snapshot) {
  std::uint64_t bytes = 0;
  for (const auto* tensors : {&snapshot.model, &snapshot.optimizer, &snapshot.average}) {
    for (const auto& tensor : *tensors) bytes += tensor.contents().size();
  }
  return bytes;
}

// Gives the folder its final name. One that has it already, from before the run went back to an
// earlier step, changes places with it: at no moment is there none.
void publish(const fs::path& temporary, const fs::path& checkpoint) {
  std::error_code ignored;
  if (fs::exists(checkpoint, ignored)) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, checkpoint.c_str(), RENAME_EXCHANGE) ==
        0) {
      return;
    }
    remove_folder(checkpoint);  // a file system without exchange: the old one has to go first
  }
  if (::rename(temporary.c_str(), checkpoint.c_str()) != 0) {
    throw CheckpointError(checkpoint.string(), "cannot rename to it: " + write_trouble(errno));
  }
}

// Signals are for the training thread. A write beyond RLIMIT_FSIZE then is an error, not the end.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

void CheckpointSnapshot::OwnedTensor::assign(std::string_view new_name, DType new_dtype,
                                             const Shape& new_shape,
                                             std::span<const std::byte> new_bytes) {
  name = new_name;
  dtype = new_dtype;
  shape = new_shape;
  bytes.assign(new_bytes.begin(), new_bytes.end());
  borrowed = {};
}

void CheckpointSnapshot::OwnedTensor::borrow(std::string_view new_name, DType new_dtype,
                                             const Shape& new_shape,
                                             std::span<const std::byte> new_bytes) {
  name = new_name;
  dtype = new_dtype;
  shape = new_shape;
  bytes = {};
  borrowed = new_bytes;
}

struct CheckpointWriter::Impl {
  Impl(fs::path folder_given, CheckpointOptions options_given)
      : folder(std::move(folder_given)), options(std::move(options_given)) {
    DTRAIN_CHECK(options.keep_last >= 1 && options.keep_best >= 0, "keep_last {}, keep_best {}",
                 options.keep_last, options.keep_best);
    DTRAIN_CHECK(!options.run_id.empty(), "a checkpoint writer without a run id");
    as_checkpoint_error(folder, [this] {
      fs::create_directories(folder);
      lock = lock_folder(folder);
      remove_left_overs(folder);
      fsync_directory(folder);
      const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
      fsync_directory(parent);
      if (options.begin_step >= 0) remove_later();
    });
    thread = std::thread([this] { work(); });
  }

  ~Impl() {
    {
      std::lock_guard guard(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }

  bool idle() const { return !pending; }

  void rethrow_error() {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  void work() {
    block_signals();
    std::unique_lock guard(mutex);
    while (true) {
      changed.wait(guard, [this] { return pending || stop; });
      if (!pending) return;
      CheckpointSnapshot& snapshot = *pending;
      guard.unlock();
      std::exception_ptr failure;
      const std::int64_t step = snapshot.state.step();
      try {
        write(snapshot);
      } catch (...) {
        failure = std::current_exception();
      }
      guard.lock();
      if (!failure) {
        saved_step = step;
      } else if (options.warn_only) {
        warn(failure);
      } else if (!error) {
        error = failure;
      }
      recycled = std::move(*pending);
      recycled.state.Clear();
      recycled.validation_loss.reset();
      pending.reset();
      changed.notify_all();
    }
  }

  static void warn(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      spdlog::warn("checkpoint not written, training goes on: {}", error.what());
    }
  }

  // Note [Order of a save]
  void write(CheckpointSnapshot& snapshot) {
    const std::int64_t step = snapshot.state.step();
    const fs::path checkpoint = folder / checkpoint_name(step);
    const fs::path temporary = temporary_of(checkpoint);
    warn_of_little_space(tensor_bytes(snapshot));
    refuse_foreign(checkpoint);
    as_checkpoint_error(checkpoint, [&] {
      try {
        write_files(snapshot, temporary);
        publish(temporary, checkpoint);
      } catch (...) {
        remove_folder(temporary);
        throw;
      }
      fsync_directory(folder);
      // Holds what stood under this name before, if anything did.
      remove_folder(temporary);
    });
    // The checkpoint stands: what goes wrong from here on costs disk space, not the run.
    try {
      remove_old(step);
    } catch (const std::exception& error) {
      spdlog::warn("old checkpoints are not removed: {}", error.what());
    }
  }

  void write_files(CheckpointSnapshot& snapshot, const fs::path& temporary) {
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    snapshot.state.set_run_id(options.run_id);
    snapshot.state.clear_validation_loss();
    if (snapshot.validation_loss && std::isfinite(*snapshot.validation_loss)) {
      snapshot.state.set_validation_loss(*snapshot.validation_loss);
    }
    const fs::path state_path = temporary / "state.pb";
    const std::string state = serialize_run_state(snapshot.state, state_path.string());
    Manifest manifest;
    manifest["model.safetensors"] =
        write_safetensors(temporary / "model.safetensors", named(snapshot.model));
    manifest["optimizer.safetensors"] =
        write_safetensors(temporary / "optimizer.safetensors", named(snapshot.optimizer));
    if (!snapshot.average.empty()) {
      manifest[std::string(average_name)] =
          write_safetensors(temporary / average_name, named(snapshot.average));
    }
    manifest["state.pb"] = write_text(state_path, state);
    write_text(temporary / manifest_name, to_text(manifest));
    fsync_directory(temporary);
  }

  // A checkpoint of this very step may stand there from before the run went back, or damaged; both
  // are replaced. Another run's is not.
  void refuse_foreign(const fs::path& checkpoint) const {
    std::error_code ignored;
    if (!fs::exists(checkpoint, ignored)) return;
    std::string owner;
    try {
      owner = read_run_state(checkpoint).run_id();
    } catch (const CheckpointError& error) {
      spdlog::warn("a damaged checkpoint is replaced: {}", error.what());
      return;
    }
    if (owner == options.run_id) return;
    // A run that lost all its checkpoints may have a new id; what no run can go on from must not
    // stand in its way.
    if (verifies(checkpoint)) {
      throw CheckpointError(checkpoint.string(),
                            fmt::format("belongs to another run ({}, this one is {}): choose "
                                        "another output, or --overwrite",
                                        owner, options.run_id));
    }
    spdlog::warn("{}: a damaged checkpoint is replaced", checkpoint.string());
  }

  // A later --resume must not take a branch that was given up for this one. Damaged checkpoints
  // stay until this run reaches their step: nothing resumes from them, but their weights may be of
  // use.
  void remove_later() {
    std::vector<std::int64_t> later;
    for (const std::int64_t step : list_checkpoints(folder)) {
      const fs::path checkpoint = folder / checkpoint_name(step);
      if (step <= options.begin_step || !verifies(checkpoint)) continue;
      if (read_run_state(checkpoint).run_id() == options.run_id) later.push_back(step);
    }
    if (later.empty()) return;
    spdlog::warn(
        "{}: the run goes back to step {}: its checkpoints of later steps are removed ({})",
        folder.string(), options.begin_step, fmt::join(later, ", "));
    // The newest first: whatever a crash leaves is a whole branch.
    std::ranges::reverse(later);
    remove_steps(later);
  }

  void remove_old(std::int64_t saved) {
    std::vector<RetainedStep> own;
    for (const std::int64_t step : list_checkpoints(folder)) {
      try {
        const checkpoint::RunState state = read_run_state(folder / checkpoint_name(step));
        if (state.run_id() != options.run_id || state.step() != step) continue;
        own.push_back({step, state.has_validation_loss() ? std::optional(state.validation_loss())
                                                         : std::nullopt});
      } catch (const CheckpointError&) {
        // Unreadable: whose it is cannot be told, so it is left alone.
      }
    }
    remove_steps(steps_to_remove(own, saved, options.keep_last, options.keep_best));
  }

  // Note [Order of a save]
  void remove_steps(const std::vector<std::int64_t>& steps) {
    std::vector<fs::path> removed;
    for (const std::int64_t step : steps) {
      const fs::path checkpoint = folder / checkpoint_name(step);
      removed.push_back(temporary_of(checkpoint));
      fs::rename(checkpoint, removed.back());
    }
    if (removed.empty()) return;
    fsync_directory(folder);
    for (const fs::path& path : removed) remove_folder(path);
  }

  // Said once, at the first save, while there is time to make room.
  void warn_of_little_space(std::uint64_t bytes) {
    if (std::exchange(space_checked, true)) return;
    std::error_code error;
    const fs::space_info space = fs::space(folder, error);
    const std::uint64_t copies = static_cast<std::uint64_t>(options.keep_last) +
                                 static_cast<std::uint64_t>(options.keep_best) + 1;
    if (error || space.available / copies >= bytes) return;
    spdlog::warn(
        "{}: {} checkpoints (keep_last, keep_best and the one being written) need {:.1f} "
        "MB, {:.1f} MB are free",
        folder.string(), copies, 1e-6 * static_cast<double>(copies * bytes),
        1e-6 * static_cast<double>(space.available));
  }

  const fs::path folder;
  const CheckpointOptions options;
  UniqueFd lock;

  mutable std::mutex mutex;
  std::condition_variable changed;
  // What the thread writes, or is about to; nothing if it is idle.
  std::optional<CheckpointSnapshot> pending;
  CheckpointSnapshot recycled;
  std::exception_ptr error;
  std::int64_t saved_step = -1;
  bool stop = false;
  bool space_checked = false;  // of the thread alone
  std::thread thread;
};

CheckpointWriter::CheckpointWriter(fs::path folder, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(std::move(folder), std::move(options))) {}

CheckpointWriter::~CheckpointWriter() = default;

CheckpointSnapshot CheckpointWriter::take_snapshot() {
  std::unique_lock guard(impl_->mutex);
  impl_->changed.wait(guard, [this] { return impl_->idle(); });
  return std::exchange(impl_->recycled, {});
}

void CheckpointWriter::save(CheckpointSnapshot snapshot) {
  {
    std::unique_lock guard(impl_->mutex);
    impl_->changed.wait(guard, [this] { return impl_->idle(); });
    impl_->rethrow_error();
    impl_->pending = std::move(snapshot);
  }
  impl_->changed.notify_all();
}

void CheckpointWriter::wait() {
  std::unique_lock guard(impl_->mutex);
  impl_->changed.wait(guard, [this] { return impl_->idle(); });
  impl_->rethrow_error();
}

std::int64_t CheckpointWriter::last_saved_step() const {
  std::lock_guard guard(impl_->mutex);
  return impl_->saved_step;
}

}  // namespace dtrain
