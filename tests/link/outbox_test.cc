// The order in which messages to a peer leave.
#include "common/link/outbox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/link/wire_values.h"

namespace muster {
namespace {

class OutboxTest : public ::testing::Test {
 protected:
  // Takes as many as fit into the window and returns them in order. Their space is in use until
  // Sent().
  std::vector<std::string> Take(size_t most = 1000) {
    std::vector<std::string> taken;
    outbox_.Send([&](const std::string& item, Release sent) {
      if (taken.size() == most) {
        if (sent.call != nullptr) sent.call(sent.hint);
        return false;
      }
      taken.push_back(item);
      if (sent.call != nullptr) under_way_.push_back(sent);
      return true;
    });
    return taken;
  }
  // Reports that the oldest tensor under way has been sent.
  void Sent() {
    const Release first = under_way_.front();
    under_way_.erase(under_way_.begin());
    first.call(first.hint);
  }
  ~OutboxTest() override {
    while (!under_way_.empty()) Sent();
  }
  // Adds a tensor that fills the window together with two others.
  void AddLarge(const std::string& name, const Urgency& urgency) {
    outbox_.AddTensor(urgency, SendWindow::kBytes, name);
  }

  int room_ = 0;  // number of calls
  Outbox<std::string> outbox_{Release{[](void* count) { ++*static_cast<int*>(count); }, &room_}};
  std::vector<Release> under_way_;
};

using Names = std::vector<std::string>;

TEST_F(OutboxTest, ControlMessagesOvertakeTensorsAndKeepTheirOrder) {
  outbox_.AddTensor({.step = 1, .chunk = 0}, 4, "tensor");
  outbox_.AddControl(10, "loss");
  outbox_.AddControl(10, "beat");
  EXPECT_EQ(Take(), (Names{"loss", "beat", "tensor"}));
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(OutboxTest, TensorsLeaveByStepThenWeightsBeforeAverageThenChunk) {
  outbox_.AddTensor({.step = 2, .chunk = 0}, 4, "2/0");
  outbox_.AddTensor({.step = 1, .average = true, .chunk = 0}, 4, "1/average");
  outbox_.AddTensor({.step = 1, .chunk = 7}, 4, "1/7");
  outbox_.AddTensor({.step = 1, .chunk = 3}, 4, "1/3");
  EXPECT_EQ(Take(), (Names{"1/3", "1/7", "1/average", "2/0"}));
}

// A worker pushes several subtrees of one chunk.
TEST_F(OutboxTest, EquallyUrgentTensorsKeepTheirOrder) {
  for (const char* name : {"a", "b", "c"}) outbox_.AddTensor({.step = 1, .chunk = 5}, 4, name);
  EXPECT_EQ(Take(), (Names{"a", "b", "c"}));
}

TEST_F(OutboxTest, TensorsBeyondTheWindowWaitAndAreOvertaken) {
  for (uint32_t c = 9; c >= 5; --c) AddLarge(std::to_string(c), {.step = 1, .chunk = c});
  EXPECT_EQ(Take(), (Names{"5", "6", "7"}));  // SendWindow::kMessages
  EXPECT_EQ(outbox_.tensors(), 2u);
  AddLarge("0", {.step = 1, .chunk = 0});
  EXPECT_EQ(Take(), Names{});
  outbox_.AddControl(10, "stop");
  EXPECT_EQ(Take(), Names{"stop"}) << "it needs no space";
  EXPECT_EQ(room_, 0);
  Sent();
  EXPECT_EQ(room_, 1) << "Send is due";
  EXPECT_EQ(Take(), Names{"0"});
  Sent();
  EXPECT_EQ(Take(), Names{"8"});
}

TEST_F(OutboxTest, WhatIsNotTakenStaysAndNothingOvertakesIt) {
  outbox_.AddControl(10, "first");
  outbox_.AddControl(10, "second");
  outbox_.AddTensor({.step = 1, .chunk = 0}, 4, "0");
  outbox_.AddTensor({.step = 1, .chunk = 1}, 4, "1");
  EXPECT_EQ(Take(0), Names{});
  EXPECT_EQ(Take(1), Names{"first"});
  EXPECT_EQ(Take(2), (Names{"second", "0"}));
  EXPECT_EQ(Take(), Names{"1"});
}

// A tensor that is offered but refused uses no space in the window.
TEST_F(OutboxTest, ARefusedTensorTakesNoRoom) {
  for (uint32_t c = 0; c < SendWindow::kMessages; ++c) {
    AddLarge(std::to_string(c), {.step = 1, .chunk = c});
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Take(0), Names{});
  EXPECT_EQ(Take().size(), SendWindow::kMessages);
}

TEST_F(OutboxTest, TensorsCanBeDroppedAlone) {
  outbox_.AddTensor({.step = 1, .chunk = 0}, 4, "tensor");
  outbox_.AddControl(10, "goodbye");
  outbox_.DropTensors();
  EXPECT_EQ(Take(), Names{"goodbye"});
  outbox_.AddControl(10, "goodbye");
  outbox_.Clear();
  EXPECT_EQ(Take(), Names{});
}

TEST_F(OutboxTest, KnowsHowManyBytesOfControlMessagesWait) {
  outbox_.AddControl(10, "first");
  outbox_.AddControl(5, "second");
  outbox_.AddTensor({.step = 1, .chunk = 0}, 400, "0");
  EXPECT_EQ(outbox_.control_bytes(), 15u);
  EXPECT_EQ(Take(1), Names{"first"});
  EXPECT_EQ(outbox_.control_bytes(), 5u);
  EXPECT_EQ(Take(2), (Names{"second", "0"}));
  EXPECT_EQ(outbox_.control_bytes(), 0u);
  outbox_.AddControl(10, "last");
  outbox_.Clear();
  EXPECT_EQ(outbox_.control_bytes(), 0u);
}

TEST_F(OutboxTest, TensorsOfOlderStepsCanBeDropped) {
  outbox_.AddTensor({.step = 1, .chunk = 8}, 4, "1/8");
  outbox_.AddTensor({.step = 1, .average = true, .chunk = 8}, 4, "1/average");
  outbox_.AddTensor({.step = 2, .chunk = 0}, 4, "2/0");
  outbox_.AddTensor({.step = 3, .chunk = 0}, 4, "3/0");
  outbox_.DropTensorsBefore(2);
  EXPECT_EQ(Take(), (Names{"2/0", "3/0"}));
}

TEST(WireValues, UrgencyIsWhatAMessageSays) {
  wire::WeightsChunk weights;
  weights.set_version(4);
  weights.set_chunk(2);
  EXPECT_EQ(UrgencyOf(weights), (Urgency{.step = 4, .average = false, .chunk = 2}));
  weights.set_average(true);
  EXPECT_EQ(UrgencyOf(weights), (Urgency{.step = 4, .average = true, .chunk = 2}));
  wire::GradientPart part;
  part.set_step(3);
  part.set_chunk(9);
  EXPECT_EQ(UrgencyOf(part), (Urgency{.step = 3, .chunk = 9}));
}

}  // namespace
}  // namespace muster
