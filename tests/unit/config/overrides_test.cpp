#include "dtrain/tests/unit/config/config_testing.h"

namespace dtrain::testing {
namespace {

TEST(Overrides, FollowTheFile) {
  const Config config = read(
      "optimizer: {lr: 0.1, momentum: 0.9}\n",
      {"optimizer.lr=1e-2", "data.transforms.mean=[0.5,0.5,0.5]", "data.transforms.std=[1, 1, 1]",
       "model.batch_norm=false", "init.strict=False", "output=/tmp/a b"});
  EXPECT_EQ(config.values.optimizer().lr(), 0.01);
  EXPECT_EQ(config.values.optimizer().momentum(), 0.9);
  EXPECT_EQ(config.values.data().transforms().mean_size(), 3);
  EXPECT_FALSE(unpack<config::Convnet>(config.values.model().options()).batch_norm());
  EXPECT_FALSE(config.values.init().strict());
  EXPECT_EQ(config.values.output(), "/tmp/a b");
  EXPECT_EQ(config.origins.at("optimizer.lr"), "command line");
  EXPECT_EQ(config.origins.at("optimizer.momentum"), "c.yaml:1");
  EXPECT_EQ(config.origins.count("optimizer.dampening"), 0U);
}

TEST(Overrides, ReplaceWholeSections) {
  const Config config = read("optimizer: {lr: 0.1, momentum: 0.9}\n",
                             {"data={train: {kind: synthetic, shape: [4]}}", "optimizer=adam",
                              "optimizer.eps=1e-6", "loss={name: mse}"});
  EXPECT_EQ(config.values.data().train().kind(), "synthetic");
  EXPECT_EQ(config.values.optimizer().name(), "adam");
  EXPECT_EQ(config.values.optimizer().lr(), 1e-3);  // not the file's: the section is another
  EXPECT_EQ(config.values.optimizer().eps(), 1e-6);
  EXPECT_EQ(config.values.loss().name(), "mse");
  EXPECT_EQ(read("optimizer: adam\n", {"optimizer.lr=0.5"}).values.optimizer().name(), "adam");
}

TEST(Overrides, LaterOnesWinButThrowNothingAway) {
  EXPECT_EQ(read("", {"seed=1", "seed=2"}).values.seed(), 2U);
  EXPECT_EQ(problem("", {"optimizer.lr=1", "optimizer=adam"}),
            "override 'optimizer=adam': optimizer: replaces the whole section and throws away "
            "'optimizer.lr'; put it first");
}

TEST(Overrides, NullTakesTheFilesValueBack) {
  const Config config = read("seed: 3\n", {"seed=null", "batch.micro=null", "batch.accumulate=2",
                                           "parallel.virtual_ranks=4"});
  EXPECT_EQ(config.values.seed(), 0U);
  EXPECT_EQ(config.values.batch().micro(), 8);
  EXPECT_EQ(problem("", {"seed="}),
            "override 'seed=': seed: the value is empty; give a whole number, or leave the key "
            "out");
}

TEST(Overrides, ErrorsNameTheOverride) {
  EXPECT_EQ(problem("", {"nope.x=1"}), "override 'nope.x=1': nope: unknown key");
  EXPECT_EQ(problem("", {"train.epoch=1"}),
            "override 'train.epoch=1': train.epoch: unknown key (value '1'); did you mean "
            "train.epochs?");
  EXPECT_EQ(problem("", {"optimizer.lr=abc"}),
            "override 'optimizer.lr=abc': optimizer.lr: expected a number, found 'abc'");
  EXPECT_EQ(problem("", {"--nproc"}),
            "override '--nproc': expected KEY=VALUE, as in optimizer.lr=0.05");
  EXPECT_EQ(problem("", {"=1"}), "override '=1': '' is not a key such as optimizer.lr");
  EXPECT_EQ(problem("", {"a..b=1"}), "override 'a..b=1': 'a..b' is not a key such as optimizer.lr");
  EXPECT_EQ(problem("", {"seed.x=1"}).find("override 'seed.x=1': seed"), 0U);
  EXPECT_EQ(problem("optimizer: {lr: 1}\n", {"optimizer.lr.x=1"}),
            "override 'optimizer.lr.x=1': optimizer.lr.x: 'optimizer.lr' is '1', not a section; "
            "give its whole value");
  EXPECT_NE(problem("", {"data.train={kind: glyphs"}).find("lacks its '}'"), std::string::npos);
  EXPECT_NE(problem("", {"model.channels=32"}).find("write [32]"), std::string::npos);
}

TEST(Overrides, PathsAreRelativeToTheWorkingDirectory) {
  const std::string here = std::filesystem::current_path().string();
  const Config config = read("output: a/b/\ninit: {from: w.safetensors}\n");
  EXPECT_EQ(config.values.init().from(), "/recipes/w.safetensors");
  EXPECT_EQ(config.values.output(), here + "/a/b");
  EXPECT_EQ(read("", {"init.from=x/../w"}).values.init().from(), here + "/w");
  EXPECT_EQ(read("", {"init.from=\"\""}).values.init().from(), "");
}

TEST(Overrides, TheCommandLineSaysHowLongToTrain) {
  const Config config = read("train: {epochs: 5, clip_norm: 1}\n", {"train.steps=30"});
  EXPECT_EQ(config.values.train().steps(), 30);
  EXPECT_FALSE(config.values.train().has_epochs());
  EXPECT_EQ(config.values.train().clip_norm(), 1);
  EXPECT_EQ(config.origins.count("train.epochs"), 0U);
  EXPECT_EQ(problem("", {"train.steps=30", "train.epochs=1"}),
            "override 'train.steps=30': train.steps: given beside train.epochs; keep one of the "
            "two");
}

}  // namespace
}  // namespace dtrain::testing
