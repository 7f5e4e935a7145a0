// Checkpoints of a run: written whole or not at all, verified before they are trusted.
//
// A checkpoint is a folder step-00000100/ with model.safetensors, optimizer.safetensors, state.pb,
// where weights are averaged ema.safetensors, and MANIFEST (name, size and XXH3-128 of each file).
// It is written to step-00000100.tmp/, its files are synced, the folder is renamed, and the parent
// is synced, so a crash leaves the old checkpoints and perhaps a .tmp folder, which the next writer
// removes.
//
//   CheckpointWriter writer(folder, {.keep_last = 3, .keep_best = 1, .run_id = id});
//   CheckpointSnapshot snapshot = writer.take_snapshot();   // its buffers are those of an earlier
//   save snapshot.model.resize(1); snapshot.model[0].assign("fc1.weight", DType::f32, shape,
//   bytes); snapshot.state.set_step(100); ... writer.save(std::move(snapshot));           //
//   returns at once; a thread writes writer.wait();                              // throws what
//   went wrong auto newest = find_newest_checkpoint(folder);
//
// Only global rank 0 touches these files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/checkpoint/safetensors.h"
#include "dtrain/core/checkpoint/state.pb.h"

namespace dtrain {

// A copy of everything that a checkpoint holds; owns its bytes, unless they are borrowed, so that
// training goes on while it is written.
struct CheckpointSnapshot {
  struct OwnedTensor {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::vector<std::byte> bytes;
    std::span<const std::byte> borrowed = {};  // instead of own bytes
    std::span<const std::byte> contents() const { return borrowed.empty() ? bytes : borrowed; }

    // Refers to bytes that stay as they are until the save is written (CheckpointWriter::wait): a
    // last checkpoint, behind which nothing changes any more, takes no memory.
    void borrow(std::string_view new_name, DType new_dtype, const Shape& new_shape,
                std::span<const std::byte> new_bytes);
    // Copies into the buffer that the tensor has, where it is large enough.
    void assign(std::string_view new_name, DType new_dtype, const Shape& new_shape,
                std::span<const std::byte> new_bytes);
  };
  std::vector<OwnedTensor> model;
  std::vector<OwnedTensor> optimizer;
  std::vector<OwnedTensor> average;  // as `model`; empty: no file is written
  checkpoint::RunState state;
  // Validation loss measured at this step, if any: keep_best ranks by it.
  std::optional<double> validation_loss;
};

// The file of the averaged weights.
inline constexpr std::string_view average_name = "ema.safetensors";

struct CheckpointOptions {
  int keep_last = 3;  // at least 1
  int keep_best = 1;
  bool warn_only = false;  // on_save_error: warn
  std::string run_id;      // not empty
  // Step that the run goes on from. Later checkpoints of this run belong to a branch that it gave
  // up: the writer removes those that verify before anything is saved. -1: there are none.
  std::int64_t begin_step = -1;
};

class CheckpointWriter {
 public:
  // `folder` is runs/NAME/checkpoints; made if missing. Removes .tmp folders left by a crash.
  // Throws CheckpointError, also where another process has a writer for this folder.
  CheckpointWriter(std::filesystem::path folder, CheckpointOptions options);
  ~CheckpointWriter();  // finishes what was started; errors were for wait()
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // The snapshot of the last save, to be filled again: its buffers are mapped already, so that a
  // save costs a step the copy alone, and all saves together one copy of the tensors. Tensors stand
  // as they were left; `state` and `validation_loss` are empty. Waits for that save to be written.
  CheckpointSnapshot take_snapshot();
  // Hands the snapshot to the writing thread; waits only if an earlier one is still being written.
  // Throws the error of an earlier save (unless warn_only, which logs it).
  void save(CheckpointSnapshot snapshot);
  // Waits for all saves and throws their first error.
  void wait();
  // Newest step written, or -1.
  std::int64_t last_saved_step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "step-00000100".
std::string checkpoint_name(std::int64_t step);

// The step of such a name, exactly as checkpoint_name spells it; nothing otherwise.
std::optional<std::int64_t> step_of_checkpoint_name(std::string_view name);

// Steps of complete-looking checkpoints (they have a MANIFEST), in numeric order; names that do not
// parse are ignored. Empty if there is no such folder.
std::vector<std::int64_t> list_checkpoints(const std::filesystem::path& folder);

// Whether the folder is one that a writer made, whole, damaged or half written: its MANIFEST or
// run state can be read, or it holds nothing but files of their names.
bool is_checkpoint_folder(const std::filesystem::path& folder);

// Run id of the newest checkpoint whose run state can be read, damaged or not; "" if there is none.
std::string newest_run_id(const std::filesystem::path& folder);

// Compares sizes and digests with MANIFEST, and the step in state.pb with the folder's name. Throws
// CheckpointError naming the file that differs.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// The highest step that verifies; damaged ones are reported with a warning and passed over.
std::optional<std::filesystem::path> find_newest_checkpoint(const std::filesystem::path& folder);

// The checkpoint that `path` means: a checkpoint folder, or a run or checkpoints folder whose
// newest it is. It verifies. Throws CheckpointError if there is none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// The weights that `path` means: a safetensors file, or model.safetensors of resolve_checkpoint;
// `averaged`: its ema.safetensors, if there is one.
std::filesystem::path resolve_weights(const std::filesystem::path& path, bool averaged = false);

// state.pb of a checkpoint folder. Throws CheckpointError naming file and field.
checkpoint::RunState read_run_state(const std::filesystem::path& checkpoint);

// Where load_tensors puts a tensor.
struct TensorTarget {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<std::byte> bytes;
};

// Says which target a file's tensor stands for by its name; "" for one that is to be left out.
using TensorNaming = std::function<std::string(std::string_view name)>;

// Loads named tensors in place, under the names that `naming` gives them, if any. Several names of
// one target (tied weights) must hold the same bytes. A prefix that all names of the file share
// ("module.") is stripped, with one notice, where that makes more of them match. F16 and BF16 are
// widened to an f32 target. Throws CheckpointError that counts missing, unexpected and misshaped
// names, before any target changes; with strict = false loads what matches and lists what does not;
// nothing matched is always an error. Returns the number loaded.
int load_tensors(const std::filesystem::path& safetensors, std::span<const TensorTarget> targets,
                 bool strict, const TensorNaming& naming = nullptr);

// Throws what load_tensors would, from the file's header alone; `bytes` of the targets are not
// looked at.
void check_tensors(const std::filesystem::path& safetensors, std::span<const TensorTarget> targets,
                   bool strict, const TensorNaming& naming = nullptr);

}  // namespace dtrain
