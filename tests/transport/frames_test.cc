// Messages and ZeroMQ frames: split messages are reassembled, and missing frames are detected.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/transport/zmq/zmq_frames.h"
#include "proto/wire.pb.h"

namespace muster {
namespace {

class FramesTest : public ::testing::Test {
 protected:
  FramesTest() : from_(context_, zmq::socket_type::pair), to_(context_, zmq::socket_type::pair) {
    to_.set(zmq::sockopt::rcvtimeo, 20000);
    to_.bind("inproc://frames");
    from_.connect("inproc://frames");
  }

  static wire::WorkerMessage Part(int64_t step) {
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_step(step);
    return message;
  }
  // The frames of this message.
  Frames Sent(const wire::WorkerMessage& message, std::span<const float> tensor = {}) {
    EXPECT_TRUE(sender_.Send(message, std::as_bytes(tensor), {}));
    return ReceiveFrames(to_, zmq::recv_flags::none, 100);
  }
  static Frames Copy(Frames& frames, const std::vector<size_t>& which) {
    Frames copies(which.size());
    for (size_t i = 0; i < which.size(); ++i) copies[i].copy(frames[which[i]]);
    return copies;
  }
  static bool IsMessage(Frames frames) {
    wire::WorkerMessage message;
    return Assemble(std::move(frames), message).has_value();
  }

  zmq::context_t context_;
  zmq::socket_t from_, to_;
  FrameSender sender_{from_, 1 << 10};
};

TEST_F(FramesTest, APlainMessageIsOneFrame) {
  Frames frames = Sent(Part(7));
  ASSERT_EQ(frames.size(), 1u);
  wire::WorkerMessage message;
  const auto payload = Assemble(std::move(frames), message);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->bytes, 0u);
  EXPECT_EQ(message.gradient_part().step(), 7);
}

TEST_F(FramesTest, PiecesComeTogetherAgain) {
  for (const size_t floats : {1u, 255u, 256u, 257u, 1000u}) {
    std::vector<float> tensor(floats);
    std::iota(tensor.begin(), tensor.end(), 0.5f);
    Frames frames = Sent(Part(3), tensor);
    EXPECT_EQ(frames.size(), 3 + (floats + 255) / 256);
    for (const zmq::message_t& frame : frames) EXPECT_LE(frame.size(), 1u << 10);
    wire::WorkerMessage message;
    const auto payload = Assemble(std::move(frames), message);
    ASSERT_TRUE(payload);
    ASSERT_EQ(payload->bytes, floats * sizeof(float));
    EXPECT_EQ(std::memcmp(payload->data, tensor.data(), payload->bytes), 0);
    EXPECT_EQ(message.gradient_part().step(), 3);
  }
}

// The worked example of proto/PROTOCOL.md.
TEST_F(FramesTest, TheNumberByteForByte) {
  const std::vector<float> tensor(16);
  wire::WorkerMessage message = Part(3);
  message.mutable_address()->set_job(0x1122334455667788);
  message.mutable_address()->set_rank(1);
  wire::GradientPart& part = *message.mutable_gradient_part();
  part.set_chunk(0);
  part.mutable_subtree()->set_level(0);
  part.mutable_subtree()->set_index(1);
  part.set_order(8);
  for (int i = 0; i < 7; ++i) (void)Sent(Part(i), tensor);
  const Frames frames = Sent(message, tensor);
  ASSERT_EQ(frames.size(), 4u);
  const std::string number("\0\0\0\0\x1b\0\0\0\x40\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(frames.front().to_string(), number);
  EXPECT_EQ(frames.back().to_string(), number);
  EXPECT_EQ(frames[1].size(), 27u);
  EXPECT_EQ(frames[2].size(), 64u);
}

// A Hello of a network with many layers.
TEST_F(FramesTest, ALongHeaderIsCutToo) {
  wire::WorkerMessage hello;
  for (int i = 0; i < 300; ++i) hello.mutable_hello()->add_setting("a.setting: with a value");
  Frames frames = Sent(hello);
  EXPECT_GT(frames.size(), 5u);
  wire::WorkerMessage message;
  ASSERT_TRUE(Assemble(std::move(frames), message));
  EXPECT_EQ(message.SerializeAsString(), hello.SerializeAsString());
}

TEST_F(FramesTest, ATensorIsReleasedWhenItsLastPieceIs) {
  int released = 0;
  const std::vector<float> tensor(1000);
  ASSERT_TRUE(sender_.Send(Part(0), std::as_bytes(std::span(tensor)),
                           {[](void* count) { ++*static_cast<int*>(count); }, &released}));
  Frames frames = ReceiveFrames(to_, zmq::recv_flags::none, 100);
  ASSERT_EQ(frames.size(), 7u);
  while (frames.size() > 3) {
    EXPECT_EQ(released, 0);
    frames.erase(frames.begin() + 2);
  }
  EXPECT_EQ(released, 1);
}

// An attacker on the network can drop frames without being detected by CURVE.
TEST_F(FramesTest, FramesThatAreLeftOutAreNoticed) {
  const std::vector<float> one(300, 1.0f), two(300, 2.0f);
  Frames a = Sent(Part(1), one);
  Frames b = Sent(Part(1), two);  // the same header; only the number differs
  Frames c = Sent(Part(9));
  ASSERT_EQ(a.size(), 5u);  // number, header, two pieces, number
  Frames all;
  for (Frames* frames : {&a, &b, &c}) {
    for (zmq::message_t& frame : *frames) all.push_back(std::move(frame));
  }
  EXPECT_TRUE(IsMessage(Copy(all, {0, 1, 2, 3, 4})));
  EXPECT_TRUE(IsMessage(Copy(all, {10})));
  // One header with the other's tensor, in all ways that keep the order.
  EXPECT_FALSE(IsMessage(Copy(all, {0, 1, 7, 8, 9})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 6, 7, 8, 9})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 1, 2, 8, 9})));
  // The end of one message, the start of an unfinished one, a message within another.
  EXPECT_FALSE(IsMessage(Copy(all, {4})));
  EXPECT_FALSE(IsMessage(Copy(all, {3, 4})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 1, 2, 3, 10})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 10})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 2, 3, 4})));
  EXPECT_FALSE(IsMessage(Copy(all, {0, 1, 2, 4}))) << "an incomplete tensor";
}

// A piece of the tensor replaces a piece of the header, with the same size. Protobuf parses any
// text of 9 n letters "a" as n unknown fields.
TEST_F(FramesTest, NoHeaderIsMadeOfATensor) {
  wire::WorkerMessage message;
  for (size_t letters = 1500; (message.ByteSizeLong() % 9) != 0 || letters == 1500; ++letters)
    message.mutable_hello()->set_token(std::string(letters, 'a'));
  std::vector<float> tensor(256);
  std::memset(tensor.data(), 'a', 1024);
  Frames frames = Sent(message, tensor);
  ASSERT_EQ(frames.size(), 5u);  // number, two pieces of the header, the tensor, number
  ASSERT_EQ(frames[1].size(), frames[3].size());
  wire::WorkerMessage forged;
  ASSERT_TRUE(forged.ParseFromString(frames[2].to_string() + frames[3].to_string()));
  EXPECT_TRUE(IsMessage(Copy(frames, {0, 1, 2, 3, 4})));
  EXPECT_FALSE(IsMessage(Copy(frames, {0, 2, 3, 4})));
}

TEST_F(FramesTest, NoiseIsNoMessage) {
  const auto frame = [](const std::string& bytes) {
    return zmq::message_t(bytes.data(), bytes.size());
  };
  EXPECT_FALSE(IsMessage({}));
  std::string bracket(24, '\0');
  for (const char size : {'\0', '\1', '\x7f', '\xff'}) {
    bracket[4] = bracket[7] = size;
    Frames frames;
    for (const std::string& bytes : {bracket, std::string("\xff\xff"), bracket}) {
      frames.push_back(frame(bytes));
    }
    EXPECT_FALSE(IsMessage(std::move(frames)));
  }
  Frames only;
  only.push_back(frame(bracket));
  EXPECT_FALSE(IsMessage(std::move(only)));
}

// A message with too many frames is read to its end and dropped.
TEST_F(FramesTest, FramesWithoutEndAreNotKept) {
  for (int i = 0; i < 50; ++i) {
    from_.send(zmq::buffer("x", 1), i < 49 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  Frames frames = ReceiveFrames(to_, zmq::recv_flags::none, 10);
  EXPECT_EQ(frames.size(), 11u);
  EXPECT_EQ(Sent(Part(4)).size(), 1u);  // the next one starts correctly
}

}  // namespace
}  // namespace muster
