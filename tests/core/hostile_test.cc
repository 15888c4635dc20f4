// Bytes that nobody should send: the server drops and counts them, and the result is the same.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "common/link/tcp_address.h"
#include "common/link/zmq_admission.h"
#include "common/link/zmq_link.h"
#include "common/log.h"
#include "common/protocol.h"
#include "tests/core/test_job.h"

namespace muster::testing {
namespace {

float Slope(int64_t step, int64_t slice, size_t i) {
  return 0.01f * static_cast<float>(step + 1) / static_cast<float>(slice + 1) +
         static_cast<float>(i % 13);
}

uint64_t QuietHash() {
  TestJob job(SmallConfig(2, 3));
  RunWorkers(job, {.gradient = Slope});
  return job.Finish().weights_hash;
}

// A connection of our own, past the client library. It knows the token, or would not get as far as
// a message.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint) : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 200);
    PresentToken(socket_, TestToken());
    socket_.set(zmq::sockopt::sndtimeo, 500);
    socket_.connect(endpoint);
  }
  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      (void)socket_.send(zmq::buffer(frames[i]),
                         i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
};

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string bytes(size, 0);
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(Hostile, StrangersChangeNothing) {
  for (const std::string transport : {"ipc", "tcp"}) {
    TestJob job(SmallConfig(2, 3), transport);
    RawPeer stranger(job.endpoint());
    std::mt19937 random(11);
    const auto flood = [&] {
      for (int i = 0; i < 50; ++i) stranger.Send({RandomBytes(random, random() % 200)});
      for (int i = 0; i < 20; ++i) {
        stranger.Send({RandomBytes(random, random() % 50), RandomBytes(random, random() % 4000)});
      }
      stranger.Send({"a", "b", "c", "d"});
      stranger.Send({""});
      // Well-formed messages of someone who never joined, with the right job and rank.
      wire::WorkerMessage message;
      message.mutable_address()->set_job(JobOf(job.token()));
      message.mutable_address()->set_rank(0);
      message.mutable_gradient_part()->set_step(0);
      message.mutable_gradient_part()->set_chunk(0);
      stranger.Send({message.SerializeAsString(), std::string(1024, 'x')});
      message.mutable_failure()->set_message("I am rank 0 and I fail");
      stranger.Send({message.SerializeAsString()});
      message.mutable_hello()->set_token(std::string(1 << 20, 'f'));
      stranger.Send({message.SerializeAsString()});
    };
    flood();
    const WorkerBehaviour behaviour{.gradient = Slope, .before_step = [](int64_t) {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                    }};
    auto workers = std::async(std::launch::async, [&] { RunWorkers(job, behaviour); });
    flood();
    // A frame larger than any that the protocol has costs the stranger its connection.
    RawPeer giant(job.endpoint());
    giant.Send({std::string(32 << 20, 'z')});
    workers.get();
    const ServerResult result = job.Finish();
    EXPECT_EQ(result.weights_hash, QuietHash()) << transport;
    EXPECT_GT(result.dropped_messages, 50u);
  }
}

// A member that talks nonsense: repeated, late, early and out-of-range chunks, foreign subtrees,
// sizes that lie, losses of others' slices.
TEST(Hostile, NonsenseOfAMemberIsDropped) {
  TestJob job(SmallConfig(2, 3));
  auto other = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    RunWorker(*client, {.gradient = Slope}, job.graph().arena_floats());
  });
  // Rank 1 through a link of our own, so that it can say anything.
  const auto link = ConnectZmq(job.endpoint(), job.OptionsFor(1).link);
  wire::WorkerMessage base;
  base.mutable_address()->set_job(JobOf(job.token()));
  base.mutable_address()->set_rank(1);
  wire::WorkerMessage hello = base;
  *hello.mutable_hello() = job.OptionsFor(1).hello;
  hello.mutable_hello()->set_token(job.token());
  hello.mutable_hello()->set_protocol_version(kProtocolVersion);
  link->Send(hello, {});
  link->Send(hello, {});  // twice

  const std::vector<Chunk> chunks = CutChunks(job.graph(), job.config().cluster());
  const StepPlan plan{
      .train_samples = TestJob::kSamples, .global_batch = 16, .total_steps = 3, .slices = 3};
  const Range mine = EvenPart(3, 2, 1);
  const std::vector<TreeNode> parts = Decompose(mine, 3);
  std::vector<float> gradient(job.graph().arena_floats());
  std::vector<std::vector<float>> kept;  // what was sent stays as it is until the end

  const auto push = [&](int64_t step, uint32_t chunk, const TreeNode& node,
                        std::span<const float> data, uint32_t rank = 1, uint32_t incarnation = 0) {
    wire::WorkerMessage message = base;
    message.mutable_address()->set_rank(rank);
    message.mutable_address()->set_incarnation(incarnation);
    message.mutable_gradient_part()->set_step(step);
    message.mutable_gradient_part()->set_chunk(chunk);
    message.mutable_gradient_part()->mutable_subtree()->set_level(node.level);
    message.mutable_gradient_part()->mutable_subtree()->set_index(node.index);
    link->Send(message, std::as_bytes(std::span(data)));
  };
  const auto train = [&](int64_t step) {
    const auto bad_loss = [&](int64_t s, uint32_t slice, int64_t samples) {
      wire::WorkerMessage message = base;
      message.mutable_slice_loss()->set_step(s);
      message.mutable_slice_loss()->set_slice(slice);
      message.mutable_slice_loss()->set_samples(samples);
      message.mutable_slice_loss()->set_loss(1);
      link->Send(message, {});
    };
    bad_loss(step, 0, plan.Slice(plan.At(step), 0).size());  // not its slice
    bad_loss(step, 77, 5);
    bad_loss(step + 1, 2, 5);
    bad_loss(step, static_cast<uint32_t>(mine.begin), 99);  // wrong size
    for (int64_t s = mine.begin; s < mine.end; ++s) {
      bad_loss(step, static_cast<uint32_t>(s), plan.Slice(plan.At(step), s).size());
      bad_loss(step, static_cast<uint32_t>(s), plan.Slice(plan.At(step), s).size());  // again
    }
    std::vector<float> garbage(1 << 12, 666.0f);
    kept.push_back(garbage);
    const std::span<const float> junk = kept.back();
    push(step, 0, parts[0], junk.first(chunks[0].floats() + 1));
    push(step, 0, parts[0], junk.first(chunks[0].floats() - 1));
    push(step, 0, parts[0], {});
    push(step, 1000000, parts[0], junk.first(16));
    push(step, 0, {0, 0}, junk.first(chunks[0].floats()));  // rank 0's slice
    push(step, 0, {63, 4000000000u}, junk.first(chunks[0].floats()));
    push(step - 1, 0, parts[0], junk.first(chunks[0].floats()));
    push(step + 1, 0, parts[0], junk.first(chunks[0].floats()));
    push(int64_t{1} << 62, 0, parts[0], junk.first(chunks[0].floats()));
    push(step, 0, parts[0], junk.first(chunks[0].floats()), 0);     // another rank
    push(step, 0, parts[0], junk.first(chunks[0].floats()), 1, 5);  // another incarnation
    for (const TreeNode& node : parts) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        bool any;
        gradient[i] = TreeSumOf([&](int64_t s) { return Slope(step, s, i); }, node, 3,
                                [](int64_t) { return false; }, &any);
      }
      kept.push_back(gradient);
      const std::span<const float> good = kept.back();
      for (size_t c = 0; c < chunks.size(); ++c) {
        push(step, static_cast<uint32_t>(c), node,
             good.subspan(chunks[c].begin, chunks[c].floats()));
        push(step, static_cast<uint32_t>(c), node,
             junk.first(chunks[c].floats()));  // repeated, other bytes
      }
    }
  };
  // The order for a step comes ahead of its weights; a step begins when it has both.
  int64_t ordered = -1, trained = -1;
  std::map<int64_t, size_t> arrived;
  bool running = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (running && std::chrono::steady_clock::now() < deadline) {
    const std::optional<FromServer> event = link->Receive();
    if (!event) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const wire::ServerMessage& message = event->message;
    if (message.has_welcome()) {
      wire::WorkerMessage ready = base;
      ready.mutable_ready();
      link->Send(ready, {});
    } else if (message.has_train()) {
      ordered = message.train().step();
    } else if (message.has_weights_chunk()) {
      ++arrived[message.weights_chunk().version()];
    } else if (message.has_stop() || event->kind == FromServer::Kind::kLost) {
      EXPECT_TRUE(message.stop().completed()) << message.stop().reason();
      wire::WorkerMessage bye = base;
      bye.mutable_goodbye();
      link->Send(bye, {});
      running = false;
    }
    if (ordered > trained && arrived[ordered] == chunks.size()) {
      trained = ordered;
      train(trained);
    }
  }
  other.get();
  const ServerResult result = job.Finish();
  EXPECT_EQ(result.weights_hash, QuietHash());
  EXPECT_GE(result.dropped_messages, 3 * 15u);
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Sanitizers keep freed memory, to find who uses it: what is resident says nothing then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentIsHeld = false;
#else
constexpr bool kResidentIsHeld = true;
#endif

// A server that is busy while a worker sends without end: what the server holds has a bound, and
// what waits at the worker arrives later.
TEST(Hostile, AFloodWaitsAtItsSender) {
  if (!kResidentIsHeld) GTEST_SKIP() << "a sanitizer keeps freed memory";
  constexpr size_t kBytes = 1 << 20;
  constexpr int kMessages = 300, kWindow = 20;
  const LinkOptions options{.max_message_bytes = 2 << 20,
                            .max_queued_messages = kMessages + 10,
                            .max_received_messages = kWindow,
                            .token = TestToken()};
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  const auto member = ConnectZmq(server->endpoint(), options);
  wire::WorkerMessage first;
  first.mutable_beat();
  ASSERT_TRUE(member->Send(first, {}));
  const auto connected = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!server->Receive()) ASSERT_LT(std::chrono::steady_clock::now(), connected);
  const std::vector<float> tensor(kBytes / sizeof(float), 1.5f);
  const size_t before = ResidentBytes();
  for (int i = 0; i < kMessages; ++i) {  // sent from where it lies: no copies on this side
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_step(i);
    ASSERT_TRUE(member->Send(message, std::as_bytes(std::span(tensor))));
  }
  // Until nothing moves any more.
  size_t held = 0, last = 1;
  for (int quiet = 0, looks = 0; quiet < 20; ++looks) {
    ASSERT_LT(looks, 400) << "the server's memory never comes to rest";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    held = ResidentBytes() - before;
    quiet = held == last ? quiet + 1 : 0;
    last = held;
  }
  EXPECT_GT(held, (kWindow / 2) * kBytes);  // the flood has come
  EXPECT_LT(held, (kWindow + 10) * kBytes) << "of " << kMessages * kBytes << " sent";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < kMessages;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "message " << i << " never came";
    const std::optional<FromWorker> event = server->Receive();
    if (!event) continue;
    ASSERT_EQ(event->kind, FromWorker::Kind::kMessage);
    EXPECT_EQ(event->message.gradient_part().step(), i++);
    EXPECT_EQ(event->payload.bytes, kBytes);
  }
}

// A member that sends a great many times its gradient, in messages that look valid: of a step to
// come, again and again, or as large as a message may be.
TEST(Hostile, AMembersFloodDoesNotFillTheServer) {
  if (!kResidentIsHeld) GTEST_SKIP() << "a sanitizer keeps freed memory";
  config::Config config = SmallConfig(1, 1);
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(200000);
  config.mutable_cluster()->set_chunk_bytes(1 << 20);
  TestJob job(config, "tcp");
  const LinkOptions options = job.OptionsFor(0).link;
  const auto link = ConnectZmq(job.endpoint(), options);
  wire::WorkerMessage message;
  message.mutable_address()->set_job(JobOf(job.token()));
  *message.mutable_hello() = job.OptionsFor(0).hello;
  message.mutable_hello()->set_token(job.token());
  message.mutable_hello()->set_protocol_version(kProtocolVersion);
  ASSERT_TRUE(link->Send(message, {}));
  message.mutable_ready();
  ASSERT_TRUE(link->Send(message, {}));
  bool training = false;
  for (int i = 0; i < 1000 && !training; ++i) {
    if (const auto event = link->Receive())
      training = event->message.has_train();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(training);

  const size_t model = job.graph().arena_floats() * sizeof(float);
  const std::vector<float> junk(options.max_message_bytes / sizeof(float) - (1 << 10), 2.5f);
  const std::vector<Chunk> chunks = CutChunks(job.graph(), config.cluster());
  const size_t before = ResidentBytes();
  size_t sent = 0, peak = 0;
  const auto look = [&] { peak = std::max(peak, std::max(ResidentBytes(), before) - before); };
  const auto push = [&](int64_t step, size_t chunk, size_t floats) {
    wire::GradientPart& part = *message.mutable_gradient_part();
    part.set_step(step);
    part.set_chunk(static_cast<uint32_t>(chunk));
    part.mutable_subtree()->set_level(0);
    ASSERT_TRUE(link->Send(message, std::as_bytes(std::span(junk).first(floats))));
    sent += floats * sizeof(float);
    look();
  };
  for (int round = 0; round < 20; ++round) {
    for (size_t c = 0; c < chunks.size(); ++c) {
      push(0, c, chunks[c].floats());  // accepted once: nothing is updated without a loss
      push(1, c, chunks[c].floats());
      push(0, c, junk.size());
    }
  }
  // What is said last is read last.
  message.mutable_failure()->set_message("that was all");
  ASSERT_TRUE(link->Send(message, {}));
  auto error = std::async(std::launch::async, [&] { return job.FinishError(); });
  while (error.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) look();
  EXPECT_NE(error.get().find("that was all"), std::string::npos);
  const size_t bound = model + (64 << 20) + 16 * options.max_message_bytes;
  EXPECT_GT(sent, 5 * bound);
  EXPECT_LT(peak, bound) << "of " << sent << " bytes sent";
}

const LinkOptions kTcp{
    .max_message_bytes = 1 << 20, .max_queued_messages = 10, .max_received_messages = 10};

LinkOptions WithToken(const std::string& token) {
  LinkOptions options = kTcp;
  options.token = token;
  return options;
}

// The first bytes that come from a server, or "" when it has closed the connection.
std::string FirstWords(int fd) {
  std::string bytes(64, 0);
  pollfd ready{fd, POLLIN, 0};
  if (::poll(&ready, 1, 20000) != 1) return "nothing came";
  const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
  return bytes.substr(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
}

// A frame that is as large as one may be, in many messages' place: nobody without the token gets
// as far as a message, whatever mechanism he begins with.
TEST(Hostile, WithoutTheTokenNothingArrives) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", WithToken(TestToken()));
  const auto wrong = ConnectZmq(server->endpoint(), WithToken("0123456789abcdef0123456789abcdee"));
  zmq::context_t context;
  zmq::socket_t none(context, zmq::socket_type::dealer);  // ZMTP's NULL
  none.set(zmq::sockopt::linger, 0);
  none.connect(server->endpoint());
  wire::WorkerMessage message;
  message.mutable_hello();
  ASSERT_TRUE(wrong->Send(message, {}));
  ASSERT_TRUE(none.send(zmq::buffer(message.SerializeAsString()), zmq::send_flags::dontwait));
  bool refused = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!refused && std::chrono::steady_clock::now() < deadline) {
    if (const auto event = server->Receive()) {
      ASSERT_EQ(event->kind, FromWorker::Kind::kRefused);
      EXPECT_EQ(event->refused, "127.0.0.1");
    }
    try {
      EXPECT_FALSE(wrong->Receive());
    } catch (const Error& error) {
      refused = true;
      EXPECT_EQ(error.code(), ExitCode::kRefused);
      EXPECT_NE(std::string(error.what()).find("token is wrong"), std::string::npos);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(refused);
  // What comes with it does come, and before anything that the others sent.
  const auto member = ConnectZmq(server->endpoint(), WithToken(TestToken()));
  message.mutable_beat();
  ASSERT_TRUE(member->Send(message, {}));
  std::optional<FromWorker> event;
  while (!(event && event->kind == FromWorker::Kind::kMessage) &&
         std::chrono::steady_clock::now() < deadline) {
    event = server->Receive();
  }
  ASSERT_TRUE(event);
  EXPECT_TRUE(event->message.has_beat());
}

// A flood is worth few lines, and none of them is in the flood's words.
TEST(Hostile, LinesThatOthersCauseAreFewAndPlain) {
  RareLine line;
  int lines = 0;
  for (int i = 0; i < 1000000; ++i) lines += line.Count() ? 1 : 0;
  EXPECT_EQ(lines, 20 + 15);  // 32, 64 … 524,288
  EXPECT_EQ(line.count(), 1000000u);
  EXPECT_EQ(Printable("host\x1b[31m\n\xff name~"), "host?[31m?? name~");
  EXPECT_EQ(Printable(std::string(500, 'a')), std::string(500, 'a'));
  EXPECT_LT(Printable(std::string(4 << 20, 'a')).size(), 510u);
}

// Who connects and says nothing, or not enough, is cut.
TEST(Hostile, ASilentConnectionIsClosed) {
  LinkOptions options = WithToken(TestToken());
  options.silence_s = 0.5;
  const auto server = ListenZmq("tcp://127.0.0.1:*", options);
  for (const std::string& said :
       {std::string(), std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0PLAIN", 17)}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(TcpAddress::Parse(server->endpoint()).port));
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(said.size()));
    std::string words;
    for (int i = 0; i < 10 && !(words = FirstWords(fd.get())).empty(); ++i) {
    }
    EXPECT_EQ(words, "") << "still open";
  }
}

// The kernel says who connects to a Unix-domain socket: another user is not even greeted.
TEST(Hostile, AnotherUserIsNotGreeted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestJob job(SmallConfig(1, 1), "ipc");
  const std::string name = job.endpoint().substr(std::string_view("ipc://@").size());
  const auto greeted = [&](uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresuid(user, user, user) != 0) ::_exit(3);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      const auto size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
      if (::connect(fd, reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(size)) != 0) {
        ::_exit(4);
      }
      ::_exit(FirstWords(fd).empty() ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(greeted(0), 0);
  EXPECT_EQ(greeted(65534), 1);
  RunWorkers(job, {.gradient = Slope});
  EXPECT_EQ(job.Finish().steps, 3);
}

}  // namespace
}  // namespace muster::testing
