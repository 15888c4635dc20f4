// TensorBoard's files: checksums, records, histograms, images.
#include "ps/tensorboard/event_file.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "common/base/records.h"
#include "ps/tensorboard/event_records.h"
#include "ps/tensorboard/observation.h"
#include "ps/tensorboard/sample_image.h"
#include "tests/data/temp_dir.h"
#include "tests/ps/tensorboard/event_reader.h"
#include "tests/ps/tensorboard/png_reader.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Crc32cTest, IsThatOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8U);
}

class EventFileTest : public ::testing::Test {
 protected:
  static tensorboard::Event Scalar(int64_t step, float value) {
    tensorboard::Event event;
    event.set_step(step);
    event.mutable_summary()->add_value()->set_tag("x");
    event.mutable_summary()->mutable_value(0)->set_simple_value(value);
    return event;
  }
  const TempDir temp_;
  const std::string dir_ = temp_.string();
  std::vector<std::string> said_;
  const EventFile::Warn warn_ = [this](const std::string& message) { said_.push_back(message); };
};

TEST_F(EventFileTest, BeginsWithItsVersionAndKeepsTheOrder) {
  {
    EventFile file(dir_, 7, warn_);
    for (int i = 0; i < 100; ++i) file.Append(Scalar(i, static_cast<float>(i) / 4));
  }  // everything is written when it is destroyed
  EXPECT_THAT(said_, IsEmpty());
  const std::vector<tensorboard::Event> events = ReadEvents(dir_);
  ASSERT_EQ(events.size(), 102u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1.6e9);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 8);  // an earlier file counts up to 7
  const std::vector<TaggedValue> values = ValuesOf(events, "x");
  ASSERT_EQ(values.size(), 100u);
  EXPECT_EQ(values[42].step, 42);
  EXPECT_EQ(values[42].value.simple_value(), 10.5F);
}

// TensorBoard reads files in the order of their names. A later server's events replace earlier
// ones, even if it starts immediately after the earlier one.
TEST_F(EventFileTest, ALaterFileHasALaterName) {
  std::vector<std::string> names;
  for (const int64_t step : {0, 7, 5}) {
    EventFile file(dir_, step, warn_);
    EXPECT_THAT(said_, IsEmpty());
    for (const auto& entry : fs::directory_iterator(dir_)) {
      const std::string name = entry.path().filename();
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  ASSERT_EQ(names.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

TEST_F(EventFileTest, WhatCannotBeWrittenIsSaidOnce) {
  EventFile file(dir_ + "/nowhere", 0, warn_);
  file.Append(Scalar(1, 1));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("/nowhere/events.out.tfevents.")));
}

// A file size limit simulates a full disk. Queued events are written when there is space again.
TEST_F(EventFileTest, WithRoomAgainAllOfItIsThere) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    EventFile file(dir_, 0, warn_);
    const auto size = fs::file_size(file.path());
    for (const rlim_t room : {rlim_t{0}, rlim_t{size} + 50, before.rlim_cur}) {
      const rlimit limit{room, before.rlim_max};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
      for (int i = 0; i < 3; ++i) file.Append(Scalar(i + 1, 1));
    }
  }
  EXPECT_THAT(said_, ElementsAre(HasSubstr("cannot be written: "),
                                 HasSubstr("can be written again; nothing is missing")));
  EXPECT_EQ(ValuesOf(ReadEvents(dir_), "x").size(), 9u);
}

TEST_F(EventFileTest, AFileThatHadNoRoomAtAllBeginsWithItsVersion) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  {
    EventFile file(dir_, 0, warn_);
    // More than the queue's limit.
    tensorboard::Event large = Scalar(1, 1);
    large.mutable_summary()->mutable_value(0)->mutable_image()->set_encoded_image_string(
        std::string(3 << 20, 'x'));
    for (int i = 1; i <= 4; ++i) {
      large.set_step(i);
      file.Append(large);
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    file.Append(Scalar(5, 1));
    EXPECT_THAT(said_, ElementsAre(HasSubstr("cannot be written: "),
                                   HasSubstr("missing: 2 events of steps 3 to 4")));
  }
  const std::vector<tensorboard::Event> events = ReadEvents(dir_);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events.back().step(), 5);
}

// Scalars are queued however long the disk is full. Events that are lost in the end are reported.
TEST_F(EventFileTest, TheEndSaysWhatIsMissing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  constexpr int kMany = 200'000;  // more bytes than the limit for large events
  {
    EventFile file(dir_, 0, warn_);
    file.Append(Scalar(1, 1));
    EXPECT_EQ(file.Missing(), "");
    const rlimit none{fs::file_size(file.path()), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int i = 2; i <= kMany; ++i) file.Append(Scalar(i, 1));
    const std::string missing = file.Missing();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(missing, HasSubstr(file.path() + ": missing: 199999 events of steps 2 to "
                                                 "200000: cannot be written: "));
    EXPECT_EQ(file.Missing(), "");  // there is space again
  }
  EXPECT_EQ(ValuesOf(ReadEvents(dir_), "x").size(), size_t{kMany});
}

// A single event with histograms of a large network is never dropped.
TEST_F(EventFileTest, AVeryLargeEventIsWritten) {
  EventFile file(dir_, 0, warn_);
  tensorboard::Event large = Scalar(1, 1);
  large.mutable_summary()->mutable_value(0)->mutable_image()->set_encoded_image_string(
      std::string(20 << 20, 'x'));
  file.Append(large);
  EXPECT_EQ(file.Missing(), "");
  EXPECT_GT(fs::file_size(file.path()), 20u << 20);
}

// The run resumes from step 20, so events of later steps in older files are repeated.
class CutEventsTest : public EventFileTest {
 protected:
  CutEventsTest() {
    EventFile file(dir_, 0, warn_);
    for (const int step : {10, 20, 30, 40}) file.Append(Scalar(step, 1));
    path_ = file.path();
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const TaggedValue& value : ValuesOf(ReadEvents(dir_), "x")) steps.push_back(value.step);
    return steps;
  }
  std::string path_;
};

TEST_F(CutEventsTest, LaterStepsAndWhatIsNotWholeGo) {
  const auto size = fs::file_size(path_);
  fs::resize_file(path_, size - 1);
  EXPECT_TRUE(CutEvents(dir_, 40).empty());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_TRUE(CutEvents(dir_, 20).empty());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{10, 20}));
  EXPECT_TRUE(CutEvents(dir_, 0).empty());
  EXPECT_TRUE(Steps().empty());
  EXPECT_EQ(ReadEvents(dir_).size(), 1u);  // the version
}

TEST_F(CutEventsTest, WhatIsBehindDamageStaysAndIsNamed) {
  tensorboard::Event event = Scalar(30, 1);
  event.set_wall_time(UnixTime());
  const auto size = fs::file_size(path_), record = FrameRecord(event.SerializeAsString()).size();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size - 2 * record));  // the start of step 30
  file << "damage that no record begins with";
  file.close();
  const std::vector<std::string> said = CutEvents(dir_, 20);
  EXPECT_EQ(fs::file_size(path_), size);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr(path_ + ": is damaged at byte "));
}

TEST_F(CutEventsTest, FilesOfOtherProgramsStay) {
  const std::string other = dir_ + "/events.out.tfevents.0000000001.host.1.0";
  fs::rename(path_, other);
  const auto size = fs::file_size(other);
  EXPECT_TRUE(CutEvents(dir_, 0).empty());
  EXPECT_EQ(fs::file_size(other), size);
}

TEST(ValueHistogramTest, CountsValuesBetweenAscendingLimits) {
  const std::vector<float> values{-2.5F, -1.0F, -0.03F, 0.0F, 1e-20F, 0.5F, 0.51F, 3.0F};
  ValueHistogram histogram;
  histogram.Add(values);
  const tensorboard::Histogram proto = histogram.ToProto();
  EXPECT_EQ(proto.num(), 8);
  EXPECT_EQ(proto.min(), -2.5);
  EXPECT_EQ(proto.max(), 3.0);
  EXPECT_NEAR(proto.sum(), 0.48, 1e-6);
  EXPECT_NEAR(proto.sum_squares(), 6.25 + 1 + 0.0009 + 0.25 + 0.2601 + 9, 1e-6);
  ASSERT_EQ(proto.bucket_size(), proto.bucket_limit_size());
  EXPECT_EQ(std::accumulate(proto.bucket().begin(), proto.bucket().end(), 0.0), 8);
  EXPECT_LT(proto.bucket_size(), 20);  // empty buckets are merged
  // Up to each limit there are as many values as counted; a value equal to a limit may be on either
  // side.
  double below = 0;
  for (int i = 0; i < proto.bucket_size(); ++i) {
    const double limit = proto.bucket_limit(i);
    EXPECT_GE(limit, i > 0 ? proto.bucket_limit(i - 1) : -2.5);
    below += proto.bucket(i);
    const auto less = std::ranges::count_if(values, [&](float v) { return v < limit; });
    const auto at_most = std::ranges::count_if(values, [&](float v) { return v <= limit; });
    EXPECT_GE(below, static_cast<double>(less)) << limit;
    EXPECT_LE(below, static_cast<double>(at_most)) << limit;
  }
}

TEST(ValueHistogramTest, PartsAddUp) {
  ValueHistogram left, right, all;
  const std::vector<float> values{1, -2, 3, -4, 5};
  left.Add(std::span(values).first(2));
  right.Add(std::span(values).subspan(2));
  left.Add(right);
  all.Add(values);
  EXPECT_EQ(left.ToProto().SerializeAsString(), all.ToProto().SerializeAsString());
  EXPECT_EQ(ValueHistogram().ToProto().bucket_size(), 0);
}

TEST(SampleImageTest, IsAPngOfLargePixelsInAFrame) {
  const SampleImage right{.index = 3,
                          .height = 1,
                          .width = 2,
                          .channels = 3,
                          .pixels = "\x01\x02\x03\x04\x05\x06",
                          .label = 7,
                          .predicted = 7};
  tensorboard::Summary summary;
  ClassNames names;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "left/right"}) names.Add(name);
  AddImage(summary, "test", right, names);
  SampleImage wrong = right;
  wrong.predicted = 8;
  AddImage(summary, "test", wrong, {});
  ASSERT_EQ(summary.value_size(), 2);
  EXPECT_EQ(summary.value(0).tag(), "test_images/3_left-right");
  EXPECT_EQ(summary.value(1).tag(), "test_images/3_7");
  EXPECT_THAT(PredictionTable({wrong}, names),
              ::testing::HasSubstr("| 3 | left/right | 8 | wrong |"));
  const tensorboard::Summary::Image& picture = summary.value(0).image();
  EXPECT_EQ(picture.width(), 2 * 64 + 8);
  EXPECT_EQ(picture.height(), 64 + 8);
  const PngReader pixels(picture.encoded_image_string());
  EXPECT_EQ(pixels.width(), picture.width());
  EXPECT_EQ(pixels.height(), picture.height());
  EXPECT_EQ(pixels.At(4, 36), 0x010203u);
  EXPECT_EQ(pixels.At(67, 36), 0x010203u);
  EXPECT_EQ(pixels.At(68, 36), 0x040506u);
  EXPECT_EQ(pixels.At(0, 0), 0x00a040u);  // the frame, green
  EXPECT_EQ(PngReader(summary.value(1).image().encoded_image_string()).At(71, 71), 0xd01010u);
}

TEST(SampleImageTest, NumbersThatDoNotFitTogetherAreLeftOut) {
  tensorboard::Summary summary;
  AddImage(summary, "test", {.height = 2, .width = 2, .channels = 3, .pixels = "short"}, {});
  AddImage(summary, "test", {.height = 1, .width = 1, .channels = 2, .pixels = "ab"}, {});
  AddImage(summary, "test", {}, {});
  EXPECT_EQ(summary.value_size(), 0);
}

}  // namespace
}  // namespace muster::testing
