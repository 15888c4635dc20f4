// With encryption, an attacker who records or changes the traffic learns nothing, and can only end
// connections.
#include "tests/transport/wiretap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>

#include "common/transport/zmq/zmq_link.h"
#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::Config Config(bool encrypt, uint32_t workers = 2) {
  config::Config config = SmallConfig(workers, 4);
  config.mutable_cluster()->set_encryption(encrypt ? config::Cluster::CURVE
                                                   : config::Cluster::NONE);
  return config;
}

// Runs a worker whose connection passes the tap. Returns the last weights that it saw.
std::vector<float> WorkBehind(const Wiretap& tap, const TestJob& job, uint32_t rank) {
  ClientOptions options = job.OptionsFor(rank);
  options.endpoint = tap.endpoint();
  Client client(std::move(options));
  return RunWorker(client, {.gradient = Rough}, rank);
}

uint64_t QuietHash() {
  TestJob job(SmallConfig(2, 4));
  RunWorkers(job, {.gradient = Rough});
  return job.Finish().weights_hash;
}

// Whether any `run` consecutive floats of `values` were sent in plain text.
bool Shows(const std::string& heard, std::span<const float> values, size_t run = 4) {
  for (size_t at = 0; at + run <= values.size(); at += run) {
    const std::string bytes(reinterpret_cast<const char*>(&values[at]), run * sizeof(float));
    const bool telling = bytes.find_first_not_of('\0') != std::string::npos;  // not padding
    if (telling && heard.find(bytes) != std::string::npos) return true;
  }
  return false;
}

TEST(Wiretap, AListenerLearnsNothing) {
  for (const bool encrypt : {false, true}) {
    TestJob job(Config(encrypt), "tcp");
    const Wiretap taps[] = {Wiretap(job.endpoint()), Wiretap(job.endpoint())};
    auto other = std::async(std::launch::async, [&] { return WorkBehind(taps[1], job, 1); });
    const std::vector<float> weights = WorkBehind(taps[0], job, 0);
    other.get();
    EXPECT_EQ(job.Finish().weights_hash, QuietHash());
    const std::string to_server = taps[0].Heard(Way::kToServer);
    const std::string to_worker = taps[0].Heard(Way::kToWorker);
    ASSERT_GT(to_server.size(), 1000u);
    // Without encryption all of it is visible, which proves that the search works.
    EXPECT_EQ(to_server.find(job.token()) != std::string::npos, !encrypt);
    EXPECT_EQ(to_server.find("hidden") != std::string::npos, !encrypt);
    EXPECT_EQ(Shows(to_worker, weights), !encrypt);
    std::vector<float> gradient(job.graph().arena_floats());
    for (size_t i = 0; i < gradient.size(); ++i) {
      bool any;
      gradient[i] = TreeSumOf([&](int64_t s) { return Rough(2, s, i); }, {1, 0}, 4,
                              [](int64_t) { return false; }, &any);
    }
    EXPECT_EQ(Shows(to_server, gradient), !encrypt);
  }
}

// An attacker replays a worker's recorded traffic. The server's part of the handshake differs each
// time.
TEST(Wiretap, ARecordingIsRefused) {
  TestJob job(Config(true), "tcp");
  const Wiretap taps[] = {Wiretap(job.endpoint()), Wiretap(job.endpoint())};
  auto other = std::async(std::launch::async, [&] { return WorkBehind(taps[1], job, 1); });
  std::promise<void> replayed;
  ClientOptions options = job.OptionsFor(0);
  options.endpoint = taps[0].endpoint();
  Client client(std::move(options));
  const WorkerBehaviour behaviour{
      .gradient = Rough, .before_step = [&](int64_t step) {
        if (step != 1) return;
        const std::string said = taps[0].Heard(Way::kToServer);
        const UniqueFd again = ConnectTo(job.endpoint());
        (void)!::send(again.get(), said.data(), said.size(), MSG_NOSIGNAL);
        // Until the server disconnects.
        std::string buffer(4096, 0);
        while (::recv(again.get(), buffer.data(), buffer.size(), 0) > 0) {
        }
        replayed.set_value();
      }};
  RunWorker(client, behaviour, 0);
  other.get();
  EXPECT_EQ(replayed.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
  const ServerResult result = job.Finish();
  EXPECT_EQ(result.weights_hash, QuietHash());
  EXPECT_EQ(result.dropped_messages, 0u);  // it could not send any message
}

// During a run, when large frames are sent.
constexpr size_t kWhen = 40;

struct Case {
  std::string name;
  Tamper tamper;
};

Tamper Flip(Way way) {
  return [way](Way at, size_t number, std::string frame) -> std::vector<std::string> {
    if (at == way && number == kWhen) frame.back() ^= 1;
    return {frame};
  };
}
Tamper Repeat(Way way) {
  return [way](Way at, size_t number, const std::string& frame) -> std::vector<std::string> {
    if (at == way && number == kWhen) return {frame, frame};
    return {frame};
  };
}
Tamper Swap(Way way) {
  return [way, held = std::string()](Way at, size_t number,
                                     const std::string& frame) mutable -> std::vector<std::string> {
    if (at == way && number == kWhen) {
      held = frame;
      return {};
    }
    if (at == way && number == kWhen + 1) return {frame, held};
    return {frame};
  };
}
Tamper Forge(Way way) {
  return [way](Way at, size_t number, const std::string& frame) -> std::vector<std::string> {
    std::string forged("\0\x31\7MESSAGE\0\0\0\0\0\0\xff\xff", 18);
    forged.resize(2 + 0x31, 'x');
    if (at == way && number == kWhen) return {forged, frame};
    return {frame};
  };
}

class Tampered : public ::testing::TestWithParam<Case> {};

// Any change to a frame of an encrypted connection ends it. The error names the rank, and no
// changed bits are used.
TEST_P(Tampered, EndsTheConnection) {
  TestJob job(Config(true, 1), "tcp");
  const Wiretap tap(job.endpoint(), GetParam().tamper);
  try {
    WorkBehind(tap, job, 0);
    ADD_FAILURE() << "the worker did not notice it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kPeerFailed) << error.what();
  }
  ExitCode code = ExitCode::kOk;
  EXPECT_THAT(job.FinishError(&code), HasSubstr("rank 0"));
  EXPECT_EQ(code, ExitCode::kPeerFailed);
}

INSTANTIATE_TEST_SUITE_P(Frames, Tampered,
                         ::testing::Values(Case{"FlippedToServer", Flip(Way::kToServer)},
                                           Case{"FlippedToWorker", Flip(Way::kToWorker)},
                                           Case{"RepeatedToServer", Repeat(Way::kToServer)},
                                           Case{"RepeatedToWorker", Repeat(Way::kToWorker)},
                                           Case{"SwappedToServer", Swap(Way::kToServer)},
                                           Case{"SwappedToWorker", Swap(Way::kToWorker)},
                                           Case{"ForgedToServer", Forge(Way::kToServer)},
                                           Case{"ForgedToWorker", Forge(Way::kToWorker)}),
                         [](const auto& info) { return info.param.name; });

// CURVE does not detect dropped frames. Between one tensor and the next header, the rest looks like
// a message with the header of one and the tensor of the other.
TEST(Wiretap, WhatIsLeftOutIsNotReplacedByAnother) {
  LinkOptions options{.max_message_bytes = 1 << 20,
                      .max_server_message_bytes = 1 << 20,
                      .max_queued_messages = 10,
                      .max_received_messages = 10,
                      .token = TestToken(),
                      .encrypt = true};
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  size_t left_out = 0;
  const Wiretap tap(server->endpoint(),
                    [&](Way way, size_t, const std::string& frame) -> std::vector<std::string> {
                      const bool first_tensor = left_out == 0 && frame.size() > 4096;
                      const bool after_it = left_out > 0 && left_out < 4;
                      if (way == Way::kToServer && (first_tensor || after_it)) {
                        ++left_out;
                        return {};
                      }
                      return {frame};
                    });
  const auto worker = ConnectZmq(tap.endpoint(), options);
  const std::vector<float> tensors[] = {std::vector<float>(2000, 1.0f),
                                        std::vector<float>(2000, 2.0f)};
  wire::WorkerMessage message;
  for (const std::vector<float>& tensor : tensors) {
    message.mutable_gradient_part();
    ASSERT_TRUE(worker->Send(message, std::as_bytes(std::span(tensor))));
  }
  message.mutable_heartbeat();
  ASSERT_TRUE(worker->Send(message, {}));
  std::vector<FromWorker::Kind> kinds;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool beat = false; !beat && std::chrono::steady_clock::now() < until;) {
    (void)worker->Receive();
    const auto event = server->Receive();
    if (!event) continue;
    kinds.push_back(event->kind);
    EXPECT_EQ(event->payload.bytes, 0u);
    beat = event->message.has_heartbeat();
  }
  EXPECT_EQ(left_out, 4u);
  EXPECT_THAT(kinds, ElementsAre(FromWorker::Kind::kMalformed, FromWorker::Kind::kMessage));
}

}  // namespace
}  // namespace muster::testing
