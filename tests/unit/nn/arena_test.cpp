// Where parameters stand, and digests of them.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"

namespace dtrain {
namespace {

std::vector<std::string> names(const ArenaLayout& layout) {
  std::vector<std::string> all;
  for (const Parameter* p : layout.parameters()) all.push_back(p->name);
  return all;
}

TEST(ArenaLayout, LiesInReverseOfRegistrationOn64ByteBorders) {
  Bag model;
  auto& block = model.add<Bag>("block");
  block.add<Linear>("fc", 5, 3);
  block.add<BatchNorm>("norm", 3);
  model.add<Linear>("out", 3, 2, false);
  const ArenaLayout layout(model);
  EXPECT_EQ(names(layout),
            (std::vector<std::string>{"out.weight", "block.norm.bias", "block.norm.weight",
                                      "block.fc.bias", "block.fc.weight"}));
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& p = *layout.parameters()[i];
    EXPECT_EQ(p.index, static_cast<int>(i));
    EXPECT_EQ(p.offset, offset);
    EXPECT_EQ(p.offset % 16, 0);
    offset += (p.elements() + 15) / 16 * 16;
  }
  EXPECT_EQ(layout.weight_elements(), offset);
  EXPECT_EQ(layout.parameter_count(), 6 + 3 + 3 + 3 + 15);
  // Behind the gradients: count, then 3 means, then 3 variances.
  ASSERT_EQ(layout.statistics().size(), 1U);
  EXPECT_EQ(layout.statistics()[0]->sums_offset, offset);
  EXPECT_EQ(layout.gradient_elements(), offset + 16);
  ASSERT_EQ(layout.buffers().size(), 2U);
  EXPECT_EQ(layout.buffers()[0]->name, "block.norm.running_mean");
  EXPECT_EQ(layout.buffers()[1]->name, "block.norm.running_var");
  EXPECT_EQ(layout.buffers()[1]->offset, 16);
  EXPECT_EQ(layout.buffer_elements(), 32);
}

TEST(ArenaLayout, TheArenaItselfStandsOnABorder) {
  Bag model;
  model.add<Linear>("fc", 7, 7);
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  for (const Parameter* p : layout.parameters()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.weight(*p).data()) % 64, 0U);
  }
}

std::string digest(const std::function<void(Bag&)>& build) {
  Bag model;
  build(model);
  return ArenaLayout(model).digest();
}

TEST(ArenaLayout, TheDigestTellsNamesShapesAndOrderApart) {
  const auto base = [](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("b", 4, 4);
  };
  const std::string first = digest(base);
  EXPECT_EQ(digest(base), first);
  std::vector<std::string> all = {first};
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("b", 4, 4);
    m.add<Linear>("a", 4, 4);
  }));
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("c", 4, 4);
  }));
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("b", 4, 4, false);
  }));
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("b", 2, 8);  // as many elements
  }));
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("b", 4, 4);
    m.add_buffer("x", {4}, 0);
  }));
  all.push_back(digest([](Bag& m) {
    m.add<Linear>("a", 4, 4);
    m.add<Linear>("b", 4, 4);
    m.add_buffer("x", {5}, 0);
  }));
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(ArenaLayout, NamesAreThoseOfOne) {
  const auto error = [](const std::function<void(Bag&)>& build) -> std::string {
    try {
      digest(build);
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error([](Bag& m) {
              m.add_parameter("w", {1}, InitScheme::zeros, 1);
              m.add_parameter("w", {1}, InitScheme::zeros, 1);
            }).find("'w'"),
            std::string::npos);
  // They would be one entry of a checkpoint.
  EXPECT_NE(error([](Bag& m) {
              m.add_parameter("w", {1}, InitScheme::zeros, 1);
              m.add_buffer("w", {1}, 0);
            }).find("'w'"),
            std::string::npos);
  EXPECT_NE(error([](Bag& m) {
              m.add_parameter("a.w", {1}, InitScheme::zeros, 1);
              m.add<Bag>("a").add_parameter("w", {1}, InitScheme::zeros, 1);
            }).find("'a.w'"),
            std::string::npos);
  EXPECT_NE(error([](Bag& m) {
              m.add<Bag>("a");
              m.add<Bag>("a");
            }).find("'a'"),
            std::string::npos);
}

TEST(ParameterArena, TheDigestIsOfValuesInNameOrder) {
  Bag forth, back;
  forth.add<Linear>("a", 3, 2);
  forth.add<BatchNorm>("b", 2);
  back.add<BatchNorm>("b", 2);
  back.add<Linear>("a", 3, 2);
  const ArenaLayout forth_layout(forth), back_layout(back);
  ParameterArena first(forth_layout), second(back_layout);
  initialize(first, RandomKey(3));
  initialize(second, RandomKey(3));
  EXPECT_EQ(first.digest(), second.digest());
  // Padding is not part of it.
  const Parameter& bias = parameter_named(forth_layout, "a.bias");
  first.weights()[bias.offset + bias.elements()] = 1;
  EXPECT_EQ(first.digest(), second.digest());
  first.buffer(*forth_layout.buffers()[0])[1] = 0.5F;
  EXPECT_NE(first.digest(), second.digest());
  first.buffer(*forth_layout.buffers()[0])[1] = 0;
  EXPECT_EQ(first.digest(), second.digest());
  first.weight(bias)[0] += 1;
  EXPECT_NE(first.digest(), second.digest());
  EXPECT_EQ(first.digest().size(), 32U);
}

TEST(ParameterArena, TheDigestIsTheDocumentedHash) {
  Bag model;
  model.add_parameter("w", {2}, InitScheme::ones, 1);
  model.add_buffer("b", {1}, 3);
  const ArenaLayout layout(model);
  ParameterArena arena(layout);
  initialize(arena, RandomKey(0));
  Hasher hasher;
  const std::vector<float> b = {3}, w = {1, 1};
  hasher.add(std::string("b"));
  hasher.add(std::as_bytes(std::span(b)));
  hasher.add(std::string("w"));
  hasher.add(std::as_bytes(std::span(w)));
  EXPECT_EQ(arena.digest(), hasher.hex());
}

TEST(FloatBlock, IsZeroedOnAPageBorderAndMoves) {
  FloatBlock block(5000);
  EXPECT_EQ(block.values().size(), 5000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.values().data()) % 4096, 0U);
  EXPECT_TRUE(std::ranges::all_of(block.values(), [](float x) { return x == 0; }));
  block.values()[4999] = 1;
  const FloatBlock moved = std::move(block);
  EXPECT_EQ(moved.values()[4999], 1);
  EXPECT_TRUE(block.values().empty());  // NOLINT: what a move leaves behind
  EXPECT_TRUE(FloatBlock(0).values().empty());
}

TEST(FloatBlock, WhatTheSystemDoesNotHaveIsAnError) {
  try {
    const FloatBlock block(std::int64_t{1} << 50);
    FAIL() << "nobody has that much";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("4294967296.0 MiB for model or optimizer state"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace dtrain
