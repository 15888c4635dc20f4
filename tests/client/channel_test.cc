// The guarantees of a client's channel, for both kinds, over a link that the test controls.
#include "worker/client/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/link/outbox.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr seconds kPatience{30};
constexpr size_t kFloats = 4 << 20;  // of a tensor; three fill the window

// The far end of a link.
struct Wire {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> to_worker;  // reasons of Stop messages
  std::vector<std::string> sent;      // kinds of messages, as returned by Name
  std::vector<Release> under_way;     // tensors
  std::vector<uint16_t> halves;       // the first one of each tensor
  bool takes_nothing = false, flushed = false;
  int refusals = 0;  // the number of messages that it will refuse
  EventFd bell;

  void Say(const std::string& reason) {
    const std::lock_guard lock(mutex);
    to_worker.push_back(reason);
    bell.Ring();
  }
  // Returns false after a timeout.
  template <typename Condition>
  bool Await(const Condition& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, condition);
  }
  // Without heartbeats, which may be sent at any time.
  std::vector<std::string> Sent() {
    const std::lock_guard lock(mutex);
    std::vector<std::string> words = sent;
    std::erase(words, "beat");
    return words;
  }
};

std::string Name(const wire::WorkerMessage& message) {
  if (message.has_failure()) return message.failure().message();
  if (message.has_gradient_part()) return std::to_string(message.gradient_part().chunk());
  return message.has_heartbeat() ? "beat" : "?";
}

class WireLink : public ClientLink {
 public:
  WireLink(Wire& wire, bool any_thread) : wire_(wire), any_thread_(any_thread) {}
  ~WireLink() override {
    // Like a link that is destroyed, which releases everything.
    for (const Release& release : wire_.under_way) release.call(release.hint);
  }

  const char* transport() const override { return "a wire"; }
  bool shares_memory() const override { return any_thread_; }
  bool any_thread() const override { return any_thread_; }
  int fd() const override { return wire_.bell.get(); }
  bool Pending() override {
    const std::lock_guard lock(wire_.mutex);
    return !wire_.to_worker.empty();
  }
  std::optional<FromServer> Receive() override {
    const std::lock_guard lock(wire_.mutex);
    wire_.bell.Clear();
    if (wire_.to_worker.empty()) return std::nullopt;
    FromServer event{FromServer::Kind::kMessage, {}, {}};
    event.message.mutable_stop()->set_reason(wire_.to_worker.front());
    wire_.to_worker.pop_front();
    return event;
  }
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override {
    const std::lock_guard lock(wire_.mutex);
    if (wire_.takes_nothing || wire_.refusals-- > 0) return false;
    wire_.sent.push_back(Name(message));
    if (!tensor.empty()) wire_.halves.push_back(*reinterpret_cast<const uint16_t*>(tensor.data()));
    if (release.call != nullptr) wire_.under_way.push_back(release);
    wire_.changed.notify_all();
    return true;
  }
  void Flush(milliseconds) override { wire_.flushed = true; }

 private:
  Wire& wire_;
  const bool any_thread_;
};

class Listener : public Channel::Owner {
 public:
  void Handle(FromServer&& event) override {
    if (event.message.stop().reason() == "16 bits") channel->SetWireType(wire::BF16, kFloats);
    const std::lock_guard lock(mutex);
    if (event.message.stop().reason() == "bad") throw Error(ExitCode::kRefused, "bad");
    if (event.message.stop().reason() == "worse") throw std::runtime_error("worse");
    heard.push_back(event.message.stop().reason());
  }
  wire::WorkerMessage Heartbeat() override {
    wire::WorkerMessage message;
    message.mutable_heartbeat();
    return message;
  }
  void Fail(std::exception_ptr why) override {
    const std::lock_guard lock(mutex);
    error = why;
  }

  Channel* channel = nullptr;
  std::mutex mutex;
  std::vector<std::string> heard;
  std::exception_ptr error;
};

Outgoing Words(const std::string& what) {
  Outgoing outgoing;
  outgoing.message.mutable_failure()->set_message(what);
  return outgoing;
}

class ChannelFixture : public ::testing::Test {
 protected:
  // True: the direct channel, for links that any thread may use. False: the threaded one.
  explicit ChannelFixture(bool any_thread)
      : channel_(MakeChannel(std::make_unique<WireLink>(wire_, any_thread), owner_)) {
    owner_.channel = channel_.get();
    channel_->Start();
  }

  Outgoing Chunk(uint32_t chunk) {
    Outgoing outgoing{.tensor = tensor_, .urgency = {.chunk = chunk}};
    outgoing.message.mutable_gradient_part()->set_chunk(chunk);
    return outgoing;
  }
  Channel::Clock::time_point Patience() { return Channel::Clock::now() + kPatience; }
  bool Waits(const Channel::Ready& ready, Channel::Clock::time_point until) {
    std::unique_lock lock(owner_.mutex);
    return channel_->Wait(lock, ready, until);
  }
  bool Hears(size_t messages) {
    return Waits([&] { return owner_.heard.size() == messages || owner_.error; }, Patience());
  }
  bool Leaves(const std::string& what) {
    return wire_.Await([&] { return std::ranges::find(wire_.sent, what) != wire_.sent.end(); });
  }

  Wire wire_;
  Listener owner_;
  std::vector<float> tensor_ = std::vector<float>(kFloats, 2.5f);
  std::unique_ptr<Channel> channel_;
};

class ChannelTest : public ChannelFixture, public ::testing::WithParamInterface<bool> {
 protected:
  ChannelTest() : ChannelFixture(GetParam()) {}
};

TEST_P(ChannelTest, WhoWaitsHearsWhatComes) {
  wire_.Say("before");
  EXPECT_TRUE(Hears(1));
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(20));
    wire_.Say("while it waits");
  });
  EXPECT_TRUE(Hears(2));
  EXPECT_EQ(owner_.heard, (std::vector<std::string>{"before", "while it waits"}));
}

TEST_P(ChannelTest, AWaitEndsAtItsDeadline) {
  EXPECT_FALSE(Waits([] { return false; }, Channel::Clock::now() + milliseconds(20)));
  EXPECT_TRUE(Waits([] { return true; }, Channel::Clock::now())) << "true from the start";
}

TEST_P(ChannelTest, MessagesLeaveInOrder) {
  const auto before = Channel::Clock::now();
  for (const char* what : {"a", "b"}) channel_->Send(Words(what), Channel::When::kSoon);
  channel_->Send(Words("c"), Channel::When::kNow);
  EXPECT_TRUE(Leaves("c"));
  EXPECT_EQ(wire_.Sent(), (std::vector<std::string>{"a", "b", "c"}));
  while (channel_->HandedOverAt() < before) std::this_thread::yield();
}

// Without waiting threads the worker still sends heartbeats and handles the server's messages.
TEST_P(ChannelTest, BeatsAndHearsWhileNobodyWaits) {
  wire_.Say("something");
  EXPECT_TRUE(Leaves("beat"));
  const std::lock_guard lock(owner_.mutex);
  EXPECT_EQ(owner_.heard, std::vector<std::string>{"something"});
}

TEST_P(ChannelTest, TheLastWordLeavesBeforeItEnds) {
  channel_->Send(Words("a"), Channel::When::kSoon);
  wire::WorkerMessage last;
  last.mutable_failure()->set_message("last");
  channel_->Finish(last);
  EXPECT_EQ(wire_.Sent(), (std::vector<std::string>{"a", "last"}));
  EXPECT_TRUE(wire_.flushed);
}

// Exceptions of the owner or the link reach a waiting thread, or the owner.
TEST_P(ChannelTest, AnErrorIsNotLost) {
  wire_.Say("bad");
  std::string what;
  try {
    EXPECT_TRUE(Hears(1));
    ASSERT_NE(owner_.error, nullptr);
    std::rethrow_exception(owner_.error);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRefused);
    what = error.what();
  }
  EXPECT_EQ(what, "bad");
}

INSTANTIATE_TEST_SUITE_P(Both, ChannelTest, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "Direct" : "Threaded"; });

class ThreadedChannelTest : public ChannelFixture {
 protected:
  ThreadedChannelTest() : ChannelFixture(false) {}
};

TEST_F(ThreadedChannelTest, WhatIsUrgentOvertakesTensorsThatWait) {
  for (uint32_t c = 9; c >= 7; --c) channel_->Send(Chunk(c), Channel::When::kNow);
  ASSERT_TRUE(wire_.Await([&] { return wire_.under_way.size() == SendWindow::kMessages; }));
  channel_->Send(Chunk(6), Channel::When::kNow);
  channel_->Send(Chunk(5), Channel::When::kNow);
  channel_->Send(Words("word"), Channel::When::kNow);
  ASSERT_TRUE(Leaves("word"));
  Release first;
  {
    const std::lock_guard lock(wire_.mutex);
    EXPECT_EQ(std::ranges::count(wire_.sent, "6"), 0);
    first = wire_.under_way.back();
    wire_.under_way.pop_back();
  }
  first.call(first.hint);
  EXPECT_TRUE(Leaves("5"));
  const std::vector<std::string> sent = wire_.Sent();
  EXPECT_EQ(std::ranges::count(sent, "6"), 0);
}

TEST_F(ThreadedChannelTest, TensorsThatWaitAreDroppedAtTheEnd) {
  for (uint32_t c = 0; c < 9; ++c) channel_->Send(Chunk(c), Channel::When::kNow);
  wire::WorkerMessage last;
  last.mutable_failure()->set_message("last");
  channel_->Finish(last);
  EXPECT_TRUE(Leaves("last"));
  EXPECT_EQ(wire_.under_way.size(), SendWindow::kMessages);
}

TEST_F(ThreadedChannelTest, TheLastWordWaitsForRoom) {
  channel_->Stop();
  wire_.refusals = 5;
  wire::WorkerMessage first, last;
  first.mutable_failure()->set_message("first");
  channel_->Send({.message = first}, Channel::When::kNow);
  last.mutable_failure()->set_message("last");
  channel_->Finish(last);
  EXPECT_EQ(wire_.Sent(), (std::vector<std::string>{"first", "last"}));
  EXPECT_TRUE(wire_.flushed);
}

TEST_F(ThreadedChannelTest, RoundsTensors) {
  wire_.Say("16 bits");
  ASSERT_TRUE(Hears(1));
  channel_->Send(Chunk(0), Channel::When::kNow);
  ASSERT_TRUE(Leaves("0"));
  EXPECT_EQ(wire_.halves, std::vector<uint16_t>{0x4020});  // 2.5
}

// The server is suspended or slow.
TEST_F(ThreadedChannelTest, WhatALinkDoesNotTakeIsSentLater) {
  const auto takes = [this](bool something) {
    const std::lock_guard lock(wire_.mutex);
    wire_.takes_nothing = !something;
  };
  takes(false);
  wire::WorkerMessage block;
  block.mutable_failure()->set_message("block");
  channel_->Send({.message = block}, Channel::When::kNow);
  channel_->Send(Chunk(0), Channel::When::kNow);
  wire_.Say("go on");  // is still received
  EXPECT_TRUE(Hears(1));
  EXPECT_TRUE(wire_.Sent().empty());
  takes(true);
  EXPECT_TRUE(wire_.Await([this] { return wire_.under_way.size() == 1; }));
  EXPECT_EQ(wire_.Sent(), (std::vector<std::string>{"block", "0"}));
  EXPECT_EQ(owner_.error, nullptr);
}

TEST_F(ThreadedChannelTest, AnythingThatIsThrownBecomesAnError) {
  wire_.Say("worse");
  EXPECT_TRUE(Hears(1));
  try {
    std::rethrow_exception(owner_.error);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "communication: worse");
  }
}

}  // namespace
}  // namespace muster
