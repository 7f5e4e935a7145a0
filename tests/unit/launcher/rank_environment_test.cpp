#include <gtest/gtest.h>
#include <stdlib.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/train/rank_info.h"
#include "dtrain/parallel/train/rank_status.h"

namespace dtrain {
namespace {

class RankInfoTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "DTRAIN_STORE"}) {
      ::unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(RankInfoTest, IsAWorldOfOneByDefault) {
  const RankInfo info = RankInfo::from_environment();
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.world_size, 1);
  EXPECT_EQ(info.local_world_size, 1);
  EXPECT_EQ(info.store, "");
}

TEST_F(RankInfoTest, ReadsTorchrunsVariables) {
  set("RANK", "5");
  set("WORLD_SIZE", "8");
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "4");
  set("NODE_RANK", "1");
  set("DTRAIN_STORE", "/tmp/x/socket");
  const RankInfo info = RankInfo::from_environment();
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world_size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 4);
  EXPECT_EQ(info.node_rank, 1);
  EXPECT_EQ(info.store, "/tmp/x/socket");
}

TEST_F(RankInfoTest, RefusesValuesThatCannotBe) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  for (const Variables& variables :
       std::vector<Variables>{{{"WORLD_SIZE", "0"}},
                              {{"WORLD_SIZE", "two"}},
                              {{"WORLD_SIZE", "2"}},  // without RANK
                              {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                              {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
                              {{"RANK", "1 "}, {"WORLD_SIZE", "2"}},
                              {{"RANK", "1"}},
                              {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
                              {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}}) {
    clear();
    for (const auto& [name, value] : variables) set(name, value);
    EXPECT_THROW(RankInfo::from_environment(), ConfigError) << variables.front().second;
  }
}

TEST(StatusPage, ShowsWhatAnotherMappingStores) {
  const StatusPage page = StatusPage::create(3);
  const StatusPage other = StatusPage::open(page.fd(), 3);
  EXPECT_EQ(page.rank(2).step.load(), 0);
  EXPECT_EQ(page.rank(2).phase.load(), RankPhase::start);
  other.rank(2).step.store(17);
  other.rank(2).phase.store(RankPhase::save);
  EXPECT_EQ(page.rank(2).step.load(), 17);
  EXPECT_EQ(to_string(page.rank(2).phase.load()), "save");
  EXPECT_EQ(page.rank(1).step.load(), 0);
  EXPECT_THROW(page.rank(3), InternalError);
  EXPECT_THROW(StatusPage::open(page.fd(), 4), InternalError);
}

}  // namespace
}  // namespace dtrain
