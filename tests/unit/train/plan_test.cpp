// What follows from recipe and placement, and what does not fit together.
#include "dtrain/parallel/train/plan.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support.h"

namespace dtrain::test {
namespace {

RunPlan plan_of(const std::vector<std::string>& overrides, int ranks = 1,
                const std::string& yaml = small_recipe) {
  return make_plan(config_of(yaml, overrides), builtin_registry(), ranks, ranks);
}

std::string error(const std::vector<std::string>& overrides, int ranks = 1,
                  const std::string& yaml = small_recipe) {
  return error_of<ConfigError>([&] { plan_of(overrides, ranks, yaml); });
}

TEST(Plan, CutsTheRecipe) {
  const RunPlan plan = plan_of({"parallel.cores=1"}, 2);
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.cores, 1);
  EXPECT_EQ(plan.lanes, 1);
  EXPECT_EQ(plan.steps, 2);
  EXPECT_EQ(plan.epochs, 0);
  EXPECT_EQ(plan.batches.virtual_ranks, 4);
  EXPECT_EQ(plan.batches.accumulate, 1);
  EXPECT_EQ(plan.batches.batches_per_epoch(), 3);
  EXPECT_EQ(plan.validation_batches.samples, 10);
  EXPECT_EQ(plan.nominal_targets, 8);
  EXPECT_EQ(plan.layout->parameter_count(), 784 * 6 + 6 + 6 * 10 + 10);
}

TEST(Plan, EpochsCountSteps) {
  const std::string yaml =
      "model: {name: mlp, inputs: 784, hidden: [], outputs: 10}\n"
      "data: {train: {kind: glyphs, size: 17}}\nbatch: {global: 8, micro: 2}\n"
      "train: {epochs: 3}\n";
  const RunPlan plan = plan_of({}, 1, yaml);
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(plan.steps, 9);
  EXPECT_EQ(plan.validation_data, nullptr);
}

// Lanes: at most as many as the widest range, of T threads each.
TEST(Plan, LanesShareTheCores) {
  struct Case {
    int ranks, cores, threads, lanes;
  };
  for (const Case c : {Case{1, 1, 1, 1},
                       {1, 3, 1, 3},
                       {1, 8, 1, 4},
                       {1, 8, 2, 4},
                       {1, 4, 2, 2},
                       {1, 1, 2, 1},
                       {3, 8, 1, 2},
                       {4, 8, 1, 1}}) {
    const RunPlan plan = plan_of({fmt::format("parallel.cores={}", c.cores),
                                  fmt::format("parallel.threads_per_virtual_rank={}", c.threads)},
                                 c.ranks);
    EXPECT_EQ(plan.lanes, c.lanes) << c.ranks << " " << c.cores << " " << c.threads;
    EXPECT_EQ(plan.cores, c.cores);
  }
}

// V = 3 on 2 ranks: rank 0 has one virtual rank, rank 1 two. The figure is that of rank 1.
TEST(Plan, MemoryIsThatOfTheProcessThatNeedsMost) {
  const std::vector<std::string> overrides = {"parallel.virtual_ranks=3", "batch.global=6",
                                              "parallel.cores=2"};
  const RunPlan plan = plan_of(overrides, 2);
  EXPECT_EQ(plan.lanes, 2);
  EXPECT_EQ(plan.gradient_bytes, 2U * sizeof(float) * plan.layout->gradient_elements());
  EXPECT_EQ(plan.weight_bytes, sizeof(float) * plan.layout->weight_elements());
  EXPECT_EQ(plan.optimizer_bytes, 2 * plan.weight_bytes);  // Adam
  EXPECT_GT(plan.activation_bytes, 0U);
}

TEST(Plan, MoreRanksThanVirtualRanks) {
  EXPECT_EQ(error({}, 5),
            "--nproc 5: the recipe has 4 virtual ranks, so 1 to 4 processes can share them; use "
            "--nproc 4, or another recipe with parallel.virtual_ranks of at least 5");
  EXPECT_EQ(error({"parallel.mode=single"}, 2),
            "parallel.mode: single runs one process, but --nproc is 2: use mode ddp or --nproc 1");
}

TEST(Plan, ModelAndDataMustFit) {
  EXPECT_EQ(error({"model.inputs=100"}),
            "model.inputs: 100 does not fit the data, whose samples are [28, 28, 1]: write "
            "model.inputs: 784");
  EXPECT_EQ(error({"model.outputs=9"}),
            "model: its outputs are 9 per sample, but the data has 10 classes: give the model that "
            "many outputs");
  EXPECT_EQ(error({"model.outputs=12"}), "");
  EXPECT_EQ(error({"loss.class_weights=[1,2,3]"}), "loss.class_weights: 3 weights for 10 outputs");
}

class PlanWithNumbers : public testing::Test {
 protected:
  std::string recipe(const std::string& loss, int outputs, const std::string& targets) {
    const auto path = folder_.path() / "points.csv";
    std::ofstream(path) << "x,y,a,b\n1,2,3,4\n5,6,7,8\n";
    return fmt::format(
        "model: {{name: mlp, inputs: 2, hidden: [], outputs: {}}}\nloss: {}\n"
        "data: {{train: {{kind: csv, path: {}, features: [x, y], targets: {}}}}}\n"
        "batch: {{global: 2, micro: 1}}\n",
        outputs, loss, path.string(), targets);
  }
  TemporaryDirectory folder_;
};

TEST_F(PlanWithNumbers, LossAndTargetsMustFit) {
  EXPECT_EQ(error({}, 1, recipe("mse", 2, "[a, b]")), "");
  EXPECT_EQ(error({}, 1, recipe("mse", 1, "[a, b]")),
            "model: its outputs are 1 per sample, but the data's targets are 2: they must be "
            "equally many");
  EXPECT_EQ(error({}, 1, recipe("cross_entropy", 2, "[a, b]")),
            "loss.name: cross_entropy wants class labels, but the data's targets are numbers of "
            "shape [2]: use mse or bce, or (csv) data.train.classes: true");
  EXPECT_EQ(error({"loss.name=mse"}),
            "loss.name: mse wants numbers as targets, but the data's targets are class labels: use "
            "cross_entropy");
}

// Targets of a full step are counted one by one where they are numbers.
TEST_F(PlanWithNumbers, NominalTargetsCountNumbers) {
  EXPECT_EQ(plan_of({}, 1, recipe("mse", 2, "[a, b]")).nominal_targets, 4);
}

TEST_F(PlanWithNumbers, ASingleClassIsSaid) {
  const auto path = folder_.path() / "one.csv";
  std::ofstream(path) << "x,c\n1,0\n5,0\n";
  const RunPlan plan =
      plan_of({"parallel.cores=1", "data.workers=1"}, 1,
              fmt::format("model: {{name: mlp, inputs: 1, hidden: [], outputs: 1}}\ndata: {{train: "
                          "{{kind: csv, path: {}, features: [x], targets: [c], classes: true}}}}\n"
                          "batch: {{global: 2, micro: 1}}\n",
                          path.string()));
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_TRUE(contains(plan.warnings[0], "loss.name: cross_entropy with a single class is 0"));
}

TEST(Plan, AnImageTooSmallForTheModel) {
  EXPECT_EQ(error({"model.channels=[2,2,2,2,2]"}, 1,
                  "model: {name: convnet}\ndata: {train: {kind: glyphs, size: 8}}\n"
                  "batch: {global: 8, micro: 2}\n"),
            "model.channels: 5 stages of 2 x 2 pooling leave nothing of an image of 28 x 28: use "
            "at most 4 entries");
}

TEST(Plan, IdleCoresAreSaid) {
  const RunPlan plan = plan_of({"parallel.cores=7"}, 4);
  ASSERT_GE(plan.warnings.size(), 1U);
  EXPECT_TRUE(contains(plan.warnings[0], "6 of the 7 cores of each process stay idle"));
  EXPECT_TRUE(contains(plan.warnings[0], "parallel.virtual_ranks"));
}

TEST(Plan, TooFewCoresAreSaid) {
  const RunPlan plan = plan_of({"parallel.cores=1", "parallel.threads_per_virtual_rank=3"});
  ASSERT_GE(plan.warnings.size(), 1U);
  EXPECT_TRUE(contains(plan.warnings[0],
                       "a process has 1 cores, but each virtual rank computes "
                       "with 3 threads"))
      << plan.warnings[0];
}

TEST(Plan, OmpNumThreadsMeansCoresPerProcess) {
  ASSERT_EQ(::setenv("OMP_NUM_THREADS", "3", 1), 0);
  EXPECT_EQ(plan_of({}).cores, 3);
  EXPECT_EQ(plan_of({"parallel.cores=2"}).cores, 2);
  ::setenv("OMP_NUM_THREADS", "4,2", 1);  // for nested levels: the outermost
  EXPECT_EQ(plan_of({}).cores, 4);
  for (const char* bad : {"0", "x", "2x", "-1", " ", ",2", "99999"}) {
    ::setenv("OMP_NUM_THREADS", bad, 1);
    EXPECT_EQ(error({}), fmt::format("OMP_NUM_THREADS='{}': dtrain takes it for the cores of a "
                                     "process, a number from 1 to 4096: change or unset it, or "
                                     "set parallel.cores",
                                     bad));
  }
  ::unsetenv("OMP_NUM_THREADS");
  const int unset = plan_of({}).cores;
  ::setenv("OMP_NUM_THREADS", "", 1);  // the same as not set
  EXPECT_EQ(plan_of({}).cores, unset);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(Plan, LengthsAreLimited) {
  EXPECT_EQ(error({"train.epochs=9000000000000000000"}),
            "train.epochs: 9000000000000000000 epochs of 3 steps are more steps than a run can "
            "have (9007199254740992): at most 3002399751580330 epochs");
  EXPECT_EQ(error({"train.epochs=3002399751580330"}), "");
  EXPECT_EQ(error({"train.steps=9007199254740993"}),
            "train.steps: 9007199254740993 steps are more than a run can have (9007199254740992)");
}

TEST(Plan, AModelBeyondAllMachinesIsNamed) {
  EXPECT_EQ(error({"model.hidden=[2000000000,2000000000]"}),
            "model: fc2.weight of shape [2000000000, 2000000000] is too large: a model has at most "
            "1099511627776 numbers; lower the sizes under model");
}

// 160 GB of weights take address space while they are looked at, and no memory.
TEST(Plan, TooLittleMemoryIsSaidWithoutTakingIt) {
  const RunPlan plan = plan_of({"model.hidden=[200000,200000]"});
  EXPECT_GT(plan.weight_bytes, 160000000000U);
  const AvailableMemory some{.bytes = 1 << 30, .limit = "a test"};
  const std::string text = memory_shortage(plan, 2, some);
  EXPECT_TRUE(contains(text, "not enough memory: 2 processes of ")) << text;
  EXPECT_TRUE(contains(text, "but 1024.0 MiB are left (a test): lower the sizes under model"))
      << text;
  const RunPlan small = plan_of({});
  EXPECT_EQ(memory_shortage(small, 2, {2 * small.process_bytes(), ""}), "");
  EXPECT_NE(memory_shortage(small, 2, {2 * small.process_bytes() - 1, ""}), "");
}

TEST(Plan, OdditiesAreSaid) {
  const auto warnings = [](const std::vector<std::string>& overrides) {
    std::string all;
    for (const std::string& warning : plan_of(overrides).warnings) all += warning + "\n";
    return all;
  };
  EXPECT_TRUE(contains(warnings({"data.workers=3", "parallel.cores=2"}),
                       "data.workers: 3 loader threads share the 2 cores of a process"));
  EXPECT_FALSE(contains(warnings({"data.workers=2", "parallel.cores=2"}), "data.workers"));
  EXPECT_TRUE(contains(warnings({"train.epochs=1", "schedule.warmup_steps=4"}),
                       "schedule.warmup_steps: 4 is more than the 3 steps of the run"));
  EXPECT_FALSE(contains(warnings({"train.epochs=1", "schedule.warmup_steps=3"}), "warmup"));
}

TEST(Plan, DoesNotDependOnTheRank) {
  const RunPlan one = plan_of({}, 2), two = plan_of({}, 2);
  EXPECT_EQ(one.buckets.digest(), two.buckets.digest());
  EXPECT_EQ(one.layout->digest(), two.layout->digest());
  EXPECT_EQ(one.train_data->identity(), two.train_data->identity());
}

TEST(ModelTable, ListsParametersInOrderOfTheModelAndThenBuffers) {
  const RunPlan plan = plan_of({"model.channels=[2]", "model.hidden=3"}, 1,
                               "model: {name: convnet}\ndata: {train: {kind: glyphs, size: 8}}\n"
                               "batch: {global: 8, micro: 2}\n");
  std::vector<std::string> names;
  std::int64_t elements = 0;
  for (const ModelRow& row : model_table(*plan.layout)) {
    names.push_back(row.name + " " + to_string(row.shape));
    if (!row.buffer) elements += row.elements;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight [2, 1, 3, 3]", "bn1.weight [2]",
                                             "bn1.bias [2]", "fc1.weight [3, 392]", "fc1.bias [3]",
                                             "fc2.weight [10, 3]", "fc2.bias [10]",
                                             "bn1.running_mean [2]", "bn1.running_var [2]"}));
  EXPECT_EQ(elements, plan.layout->parameter_count());
}

std::string overlap(const std::string& train, const std::string& validation) {
  const RunPlan plan = plan_of({"parallel.cores=1"}, 1,
                               "model: {name: mlp, inputs: 784, hidden: [], outputs: 10}\n"
                               "data: {train: {kind: glyphs, " +
                                   train + "}, validation: {kind: glyphs, " + validation +
                                   "}}\nbatch: {global: 8, micro: 1}\n");
  for (const std::string& warning : plan.warnings) {
    if (warning.starts_with("data.validation")) return warning;
  }
  return "";
}

// Case C088: the training file given as validation data too.
TEST(Plan, ValidationOnTrainingDataIsSaid) {
  EXPECT_EQ(
      overlap("size: 40", "size: 40"),
      "data.validation: is the same data as data.train: its loss says nothing about new data");
  EXPECT_EQ(overlap("size: 40", "size: 20, offset: 30"),
            "data.validation: 50% of it is in data.train too, so its loss says less about new "
            "data: give the parts sizes and offsets that do not meet");
  EXPECT_EQ(overlap("size: 40", "size: 10, offset: 20").substr(0, 35),
            "data.validation: 100% of it is in d");
  EXPECT_EQ(overlap("size: 10, repeat: 5", "size: 20, offset: 10"), "");
  EXPECT_EQ(overlap("size: 40", "size: 20, offset: 40"), "");
  EXPECT_EQ(overlap("size: 40", "size: 40, seed: 2"), "");
}

TEST(Plan, AveragesTakeMemory) {
  const RunPlan without = plan_of({});
  const RunPlan with = plan_of({"train.ema_decay=0.9"});
  EXPECT_EQ(with.weight_bytes, 2 * without.weight_bytes);
}

TEST(Plan, TokensNeedAModelOfTokens) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "text";
  std::ofstream(path) << std::string(1000, 'x');
  const std::string data = fmt::format(
      "data: {{train: {{kind: text, path: {}, context: 8}}}}\n"
      "batch: {{global: 8, micro: 1}}\n",
      path.string());
  EXPECT_EQ(error({}, 1, "model: {name: mlp, inputs: 8, outputs: 256}\n" + data),
            "model.name: mlp wants numbers, but the data's samples are tokens (i32)");
  EXPECT_EQ(error({}, 1, "model: {name: convnet}\n" + data).substr(0, 31),
            "model.name: convnet wants image");
}

}  // namespace
}  // namespace dtrain::test
