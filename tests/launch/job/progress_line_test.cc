#include "launch/job/progress_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster {
namespace {

Progress Example() {
  Progress progress;
  Update(progress, *ParseEvent(R"({"event":"progress","step":57,"total_steps":3910,"epoch":0.15,)"
                               R"("epochs":10.0,"train_loss":1.9012,"train_accuracy":0.31,)"
                               R"("images_per_second":1200.4,"step_ms":100.0,"waiting_share":0.02,)"
                               R"("elapsed_s":6.1,"eta_s":300.0})"));
  return progress;
}

TEST(ProgressLineTest, SaysEverything) {
  EXPECT_EQ(ProgressLine(Example(), 1000),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  "
            "5 min 00 s left  waiting 2 %");
}

TEST(ProgressLineTest, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(ProgressLine(Example(), 100),
            "step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  "
            "5 min 00 s left");
  EXPECT_EQ(ProgressLine(Example(), 60),
            "step 57/3,910  epoch 0.15/10  loss 1.901  1,200 images/s");
  EXPECT_EQ(ProgressLine(Example(), 30), "step 57/3,910  loss 1.901");
  EXPECT_EQ(ProgressLine(Example(), 8), "step 5..");
}

TEST(ProgressLineTest, FitsEveryWidth) {
  for (int width = 0; width < 130; ++width) {
    EXPECT_LE(ProgressLine(Example(), width).size(), static_cast<size_t>(width));
  }
}

TEST(ProgressLineTest, EvaluationComesFirst) {
  Progress progress = Example();
  Update(progress, *ParseEvent(R"({"phase":"evaluation","done":12,"total":40})"));
  EXPECT_EQ(ProgressLine(progress, 1000),
            "evaluating 12/40  step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %");
  Update(progress, *ParseEvent(R"({"step":58})"));
  EXPECT_EQ(ProgressLine(progress, 20), "step 58/3,910");
}

TEST(ProgressLineTest, MissingFieldsAreLeftOut) {
  Progress progress;
  EXPECT_EQ(ProgressLine(progress, 80), "");
  Update(progress, *ParseEvent(R"({"step":"three","train_loss":null,"epoch":[1]})"));
  EXPECT_EQ(ProgressLine(progress, 80), "");
  Update(progress, *ParseEvent(R"({"step":1e300,"train_loss":2})"));
  EXPECT_EQ(ProgressLine(progress, 80), "loss 2.000");
}

TEST(ProgressLineTest, LogLinesLineUp) {
  Progress first = Example(), second = Example();
  second.step = 3910;
  second.epoch = 10;
  second.images_per_second = 12;
  second.eta_s = 0;
  std::string a = LogLine(first), b = LogLine(second);
  EXPECT_EQ(a.find("images/s"), b.find("images/s"));
  EXPECT_EQ(a.find("waiting"), b.find("waiting"));
  EXPECT_EQ(a,
            "step    57/3,910  epoch   0.15/10  loss  1.901  accuracy 31.0 %   1,200 images/s"
            "   100 ms/step  waiting  2 %  5 min 00 s left");
}

TEST(ProgressLineTest, Evaluation) {
  Progress progress;
  Update(progress, *ParseEvent(R"({"step":391,"epoch":1,"test_accuracy":0.5512,)"
                               R"("test_loss":1.28421,"elapsed_s":41})"));
  EXPECT_EQ(
      EvaluationLine(progress),
      "evaluation  epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842  after 41 s");
}

TEST(ParseEventTest, OnlyObjects) {
  EXPECT_FALSE(ParseEvent(""));
  EXPECT_FALSE(ParseEvent("{\"event\":"));
  EXPECT_FALSE(ParseEvent("[1]"));
  EXPECT_FALSE(ParseEvent("17"));
  EXPECT_TRUE(ParseEvent("{}"));
}

}  // namespace
}  // namespace muster
