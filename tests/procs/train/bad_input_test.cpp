// Input that cannot work: one clear error and exit code 2 before a rank starts or anything is
// written.
#include "runs.h"
#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* good = R"(
model: {name: mlp, inputs: 8, hidden: [8], outputs: 4}
data: {train: {kind: synthetic, shape: [8], classes: 4, size: 64}}
batch: {global: 16, micro: 4}
optimizer: {name: sgd, lr: 0.1}
train: {steps: 4}
)";

class BadInput : public Runs {
 protected:
  void expect_refused(const std::string& yaml, int nproc, const std::vector<std::string>& extra,
                      const std::vector<std::string>& words) {
    const RunFiles run = new_output();
    const TimePoint begin = Clock::now();
    const Outcome outcome = finish(command(yaml, nproc, run, extra));
    EXPECT_LT(seconds_since(begin), 10);
    EXPECT_EQ(outcome.code, 2) << yaml << fmt::format("{}", extra.empty() ? "" : extra[0]);
    for (const std::string& word : words) {
      EXPECT_NE(outcome.error.find(word), std::string::npos) << word << "\n" << outcome.error;
    }
    EXPECT_FALSE(fs::exists(run.folder)) << outcome.error;
    EXPECT_EQ(leftovers_.found(temporary_), "");
  }
};

TEST_F(BadInput, IsRefusedBeforeAnythingIsWritten) {
  train(good, 2);  // so that what follows fails for one reason
  expect_refused(std::string(good) + "learing_rate: 1\n", 2, {}, {"learing_rate", ":7:1"});
  expect_refused(good, 2, {"optimizer.lr=fast"}, {"optimizer.lr", "fast"});
  expect_refused(good, 2, {"nope.x=1"}, {"nope"});
  expect_refused(good, 2, {"batch.micro=5"}, {"batch", "5"});
  expect_refused(good, 2, {"model.inputs=9"}, {"9", "8"});
  expect_refused(good, 2, {"loss.name=mse"}, {"mse", "labels"});
  expect_refused(good, 2, {"cpu_isa=sse1"}, {"cpu_isa", "sse1"});
  expect_refused(good, 2, {"init.from=/no/such/weights"}, {"init.from: /no/such/weights"});
  expect_refused(good, 2, {"--resume-from", "/no/such/run"}, {"/no/such/run"});
  expect_refused(good, 2, {"parallel.mode=single"}, {"single", "--nproc 1"});
}

TEST_F(BadInput, TooManyProcessesAreToldWhatWorks) {
  expect_refused(good, 5, {}, {"--nproc 5", "4 virtual ranks", "1 to 4"});
  expect_refused(good, 3, {"parallel.virtual_ranks=2"}, {"--nproc 3", "1 to 2"});
  expect_refused(good, 0, {}, {"nproc"});
}

TEST_F(BadInput, ALabelOfCifarThatIsNoneIsNamed) {
  const auto record = [](char label) { return label + std::string(3072, '\x80'); };
  const fs::path bad = write("bad.bin", record(1) + record(11) + record(2));
  const std::string recipe = fmt::format(R"(
model: {{name: mlp, inputs: 3072, hidden: [4], outputs: 10}}
data: {{train: {{kind: cifar10, path: {}}}}}
batch: {{global: 2, micro: 1}}
train: {{steps: 1}}
)",
                                         bad.string());
  expect_refused(recipe, 2, {}, {bad.string(), "record 1", "label 11"});
  expect_refused(recipe, 2, {"data.train.kind=cifar100"}, {"3073", "cifar10"});
}

TEST_F(BadInput, ARowThatIsNoNumberIsNamedOrSkipped) {
  const fs::path points = write("points.csv", "x,t\n1,1\n1,2\n1,three\n1,4\n1,5\n1,6\n1,7\n1,8\n");
  const std::string yaml = R"(
model: {name: mlp, inputs: 1, hidden: [], outputs: 1, bias: false, init: zeros}
loss: mse
data: {train: {kind: csv, path: )" +
                           points.string() + R"(, features: [x], targets: [t]}, shuffle: false}
batch: {global: 8, micro: 1}
optimizer: {lr: 0.1}
)";
  expect_refused(yaml, 4, {}, {points.string(), "line 4", "'three'"});
  for (const int nproc : {1, 4}) {
    const RunFiles run = new_output();
    const Outcome outcome = finish(command(yaml, nproc, run, {"data.on_bad_sample=skip"}));
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    const std::string console = outcome.output + outcome.error;
    for (const std::string& word :
         {points.string(), std::string("line 4"), std::string("'three'"), std::string("skipped")}) {
      EXPECT_NE(console.find(word), std::string::npos) << console;
    }
    EXPECT_EQ(run.summary().at("samples_seen"), 7);
    // The mean of the seven others is 33 / 7.
    EXPECT_NEAR(run.weight(), 0.2 * 33 / 7, 1e-6);
  }
  expect_refused(yaml, 2, {"data.train.path=/no/such.csv"}, {"/no/such.csv"});
  write("points.csv", "");
  expect_refused(yaml, 2, {}, {points.string(), "empty"});
}

// What a checkpoint fixes cannot change under --resume; the run stays as it is.
TEST_F(BadInput, AnotherRecipeCannotResume) {
  const RunFiles run = train(good, 2, {"train.steps=2"});
  const std::string log = read_file(run.folder / "log.jsonl");
  for (const auto& [change, word] : std::vector<std::pair<std::string, std::string>>{
           {"model.hidden=[16]", "model.hidden"},
           {"seed=5", "seed"},
           {"batch.global=32", "batch.global"},
           {"optimizer.name=adam", "optimizer.name"}}) {
    const Outcome outcome = finish(command(good, 2, run, {"--resume", change}));
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error.find(word), std::string::npos) << outcome.error;
    EXPECT_EQ(read_file(run.folder / "log.jsonl"), log) << change;
    EXPECT_EQ(list_checkpoints(run.checkpoints()), std::vector<std::int64_t>{2});
  }
  train_in(run, good, 3, {"--resume"});
  expect_same_bits(run, train(good, 1), "after refusals");
}

// What --overwrite clears cannot be what the run begins with.
TEST_F(BadInput, OverwriteKeepsTheWeightsToBeginFrom) {
  const RunFiles run = train(good, 1);
  const std::string digest = run.digest();
  for (const std::string& from : {run.folder.string(), run.last_checkpoint().string()}) {
    const Outcome outcome = finish(command(good, 1, run, {"--overwrite", "init.from=" + from}));
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error.find("--overwrite"), std::string::npos) << outcome.error;
    EXPECT_TRUE(fs::exists(run.last_checkpoint()));
    EXPECT_EQ(run.digest(), digest);
  }
}

// C096: counted and named before a rank starts; strict: false loads what matches.
TEST_F(BadInput, WeightsThatDoNotMatchAreNamed) {
  const RunFiles run = train(good, 1);
  const std::string from = "init.from=" + run.folder.string();
  const std::string bias = R"(
model: {name: mlp, inputs: 8, hidden: [8, 8], outputs: 4}
data: {train: {kind: synthetic, shape: [8], classes: 4, size: 64}}
batch: {global: 16, micro: 4}
train: {steps: 1}
)";
  expect_refused(bias, 2, {from},
                 {"2 missing", "fc3.weight", "2 shape mismatches", "fc2.weight", "[4, 8]", "[8, 8]",
                  "strict"});
  const RunFiles loose = new_output();
  const Outcome outcome = finish(command(bias, 2, loose, {from, "init.strict=false"}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE((outcome.output + outcome.error).find("loaded 2 of 6 tensors"), std::string::npos)
      << outcome.error;
  write("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  expect_refused(good, 2, {"init.from=" + (folder_.path() / "pointer").string()}, {"Git-LFS"});
}

// --resume on a folder without a checkpoint begins at step 0 and says so.
TEST_F(BadInput, ResumeWithoutACheckpointBegins) {
  const RunFiles run = new_output();
  const Outcome outcome = finish(command(good, 2, run, {"--resume"}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE((outcome.output + outcome.error).find("starting at step 0"), std::string::npos)
      << outcome.output << outcome.error;
  expect_same_bits(run, train(good, 1), "--resume of nothing");
}

// A damaged newest checkpoint is said and passed over: the one before it is gone on from.
TEST_F(BadInput, ADamagedCheckpointIsPassedOver) {
  const RunFiles undisturbed = train(good, 1, {"train.steps=8"});
  const RunFiles run = train(good, 2, {"checkpoint.every_steps=2"});
  const fs::path file = run.checkpoint(4) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  write(file.string(), bytes);
  const Outcome outcome = finish(command(good, 3, run, {"--resume", "train.steps=8"}));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE((outcome.output + outcome.error).find("step-00000004"), std::string::npos);
  EXPECT_EQ(run.events("resume").back().at("step"), 2);
  expect_same_bits(run, undisturbed, "over a damaged checkpoint");
}

// Where no checkpoint is whole the run starts over, and replaces them.
TEST_F(BadInput, OnlyDamagedCheckpointsAreReplaced) {
  for (const char* damaged : {"model.safetensors", "state.pb"}) {
    const RunFiles run = train(good, 1);
    const std::string id = read_run_state(run.last_checkpoint()).run_id();
    write((run.last_checkpoint() / damaged).string(), "?");
    const Outcome outcome = finish(command(good, 2, run, {"--resume"}));
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_NE((outcome.output + outcome.error).find("starting at step 0"), std::string::npos);
    verify_checkpoint(run.checkpoint(4));
    // Still the same run, where that could be told.
    EXPECT_EQ(read_run_state(run.last_checkpoint()).run_id() == id,
              std::string(damaged) == "model.safetensors");
  }
}

TEST_F(BadInput, InputsAreNotOverwritten) {
  const RunFiles run = new_output();
  const std::string recipe = write("config.yaml", good).string();
  const std::string points = write("rank-0.log", "x,t\n1,1\n1,2\n1,3\n1,4\n").string();
  const std::string csv = R"(
model: {name: mlp, inputs: 1, hidden: [], outputs: 1}
loss: mse
data: {train: {kind: csv, path: )" +
                          points + R"(, features: [x], targets: [t]}}
batch: {global: 4, micro: 1}
)";
  for (const char* option : {"--show=all", "--overwrite", "--resume"}) {
    const std::string output = "output=" + folder_.path().string();
    Outcome outcome = finish({program_, recipe, output, option});
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error.find("the recipe " + recipe), std::string::npos) << outcome.error;
    EXPECT_EQ(read_file(recipe), good);
    fs::remove(recipe);
    outcome = finish(command(csv, 1, {folder_.path()}, {option}));
    EXPECT_EQ(outcome.code, 2) << outcome.error;
    EXPECT_NE(outcome.error.find("data.train.path " + points), std::string::npos) << outcome.error;
    EXPECT_TRUE(read_file(points).starts_with("x,t"));
    write("config.yaml", good);
  }
}

TEST_F(BadInput, AnOutputThatCannotBeIsNamedAsItWasWritten) {
  const fs::path file = write("file", "");
  for (const char* option : {"--show=all", "--overwrite", "--resume"}) {
    for (const fs::path& output : {file, file / "y"}) {
      const Outcome outcome = finish(command(good, 2, {output}, {option}));
      EXPECT_EQ(outcome.code, 2) << outcome.error;
      EXPECT_TRUE(outcome.error.starts_with("output: " + output.string() + " ")) << outcome.error;
      EXPECT_NE(outcome.error.find("choose another one"), std::string::npos) << outcome.error;
    }
  }
}

// The recipe that a run left is a recipe for that folder too.
TEST_F(BadInput, TheRunsOwnRecipeMayResumeIt) {
  const RunFiles run = train(good, 1);
  const std::string recipe = (run.folder / "config.yaml").string();
  const std::string output = "output=" + run.folder.string();
  EXPECT_EQ(finish({program_, recipe, output, "--resume", "train.steps=6"}).code, 0);
  EXPECT_EQ(run.steps(), 6);
  EXPECT_EQ(finish({program_, recipe, output, "--overwrite", "train.steps=2"}).code, 0);
  EXPECT_EQ(run.steps(), 2);
}

// What a run leaves behind by going back cannot come back.
TEST_F(BadInput, GoingBackGivesUpTheLaterSteps) {
  const RunFiles run = train(good, 1, {"checkpoint.every_steps=1", "checkpoint.keep_last=9"});
  const std::string older = run.checkpoint(1).string();
  const Outcome outcome =
      finish(command(good, 2, run, {"--resume-from", older, "optimizer.lr=0.2", "train.steps=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE((outcome.output + outcome.error).find("later steps are removed (2, 3, 4)"),
            std::string::npos);
  EXPECT_EQ(list_checkpoints(run.checkpoints()), (std::vector<std::int64_t>{1, 2}));
}

// A limit on the size of files ends a save, not the process.
TEST_F(BadInput, FilesThatMayNotGrowAreAnErrorWithPathAndRemedy) {
  const RunFiles run = new_output();
  std::string script = "ulimit -f 64; exec";  // blocks of 512 or 1024 bytes
  for (const std::string& word : command(good, 1, run, {"model.hidden=[8000]"})) {
    script += " '" + word + "'";
  }
  const Outcome outcome = finish({"sh", "-c", script});
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  for (const char* word : {"step-00000004", "File too large (EFBIG)", "ulimit -f"}) {
    EXPECT_NE(outcome.error.find(word), std::string::npos) << outcome.error;
  }
  EXPECT_EQ(run.summary().at("failure").at("rank"), 0);
}

}  // namespace
}  // namespace dtrain
