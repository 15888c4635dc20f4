// What shared memory must not allow: writing to the weights, another user's access, an old
// connection's slot in a new one's place, nonsense on the socket.
#include "common/link/local_link.h"

#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <random>
#include <thread>

#include "common/link/local_address.h"
#include "common/link/local_connection.h"
#include "common/protocol.h"
#include "common/resource_limits.h"
#include "common/shared_memory.h"
#include "tests/core/test_job.h"

namespace muster::testing {
namespace {

constexpr size_t kFloats = 64;
const LinkOptions kSmallLink{
    .max_message_bytes = 1 << 20, .max_queued_messages = 100, .max_received_messages = 100};

LinkOptions SmallLink() {
  LinkOptions options = kSmallLink;
  options.token = kTestToken;
  return options;
}

std::string UniqueEndpoint() {
  std::random_device random;
  return fmt::format("local://@muster-test-{}-{:08x}", ::getpid(), random());
}

UniqueFd ConnectRaw(const std::string& endpoint) {
  const LocalAddress address(endpoint);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  EXPECT_EQ(::connect(fd.get(), address.get(), address.size), 0) << std::strerror(errno);
  return fd;
}

wire::ServerMessage WelcomeFor(uint32_t slice_begin, uint32_t slice_end) {
  wire::ServerMessage message;
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.add_chunk_end(kFloats / 2);
  welcome.add_chunk_end(kFloats);
  welcome.set_slices(2);
  welcome.set_slice_begin(slice_begin);
  welcome.set_slice_end(slice_end);
  return message;
}

// The server's end, and what a worker gets with Welcome, without the server's loop.
class Handover : public ::testing::Test {
 protected:
  explicit Handover(const LinkOptions& options = {.max_queued_messages = 100})
      : planes_(SharedMemory::Create("test-weights", 2 * kFloats * sizeof(float),
                                     SharedMemory::Access::kReadWrite)),
        endpoint_(UniqueEndpoint()),
        link_(ListenLocal(endpoint_, options)) {
    link_->ShareWeights(planes_);
  }

  FromWorker Next() {
    for (int i = 0; i < 500; ++i) {
      if (auto event = link_->Receive()) return std::move(*event);
      pollfd fd{link_->fd(), POLLIN, 0};
      if (link_->PrepareToSleep()) (void)::poll(&fd, 1, 10);
    }
    ADD_FAILURE() << "nothing came";
    return {};
  }

  struct Worker {
    LocalConnection connection;
    PeerId peer;
    std::vector<UniqueFd> fds;  // planes, slot, messages to the server, messages to the worker

    void Attach() {
      connection.Attach(
          SharedMemory::Map(UniqueFd(::dup(fds[2].get())), SharedMemory::Access::kReadWrite),
          SharedMemory::Map(UniqueFd(::dup(fds[3].get())), SharedMemory::Access::kRead));
    }
    void Die() { connection = LocalConnection(PacketSocket(UniqueFd())); }
  };
  // Connects, says something, is welcomed.
  Worker Join() {
    Worker worker{LocalConnection(PacketSocket(ConnectRaw(endpoint_))), 0, {}};
    wire::WorkerMessage hello;
    hello.mutable_hello();
    worker.connection.Append(hello.SerializeAsString());
    EXPECT_TRUE(worker.connection.Flush());
    worker.peer = Next().peer;
    EXPECT_EQ(link_->Send(worker.peer, WelcomeFor(0, 1), {}), SendResult::kQueued);
    link_->Deliver();
    std::string message;
    pollfd fd{worker.connection.fd(), POLLIN, 0};
    (void)::poll(&fd, 1, 5000);
    EXPECT_EQ(worker.connection.Receive(true, message, worker.fds),
              LocalConnection::Status::kMessage);
    EXPECT_EQ(worker.fds.size(), 4u);
    worker.Attach();
    return worker;
  }

  static void Push(Worker& worker, uint32_t chunk, uint32_t subtree = 0) {
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_chunk(chunk);
    message.mutable_gradient_part()->mutable_subtree()->set_level(0);
    message.mutable_gradient_part()->mutable_subtree()->set_index(subtree);
    worker.connection.Append(message.SerializeAsString());
    EXPECT_TRUE(worker.connection.Flush());
  }

  SharedMemory planes_;
  std::string endpoint_;
  std::unique_ptr<ServerLink> link_;
};

TEST_F(Handover, WeightsCannotBeWrittenByAWorker) {
  Worker worker = Join();
  const int planes = worker.fds[0].get();
  const size_t bytes = 2 * kFloats * sizeof(float);
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, planes, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, planes, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, bytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(::pwrite(planes, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  // Nor can its size be changed, which would make the server's own access fail.
  EXPECT_NE(::ftruncate(planes, 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(worker.fds[1].get(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  // The server's mapping goes on writing, and the worker sees it.
  planes_.writable_floats()[3] = 42;
  EXPECT_EQ(static_cast<const float*>(mapped)[3], 42);
  ::munmap(mapped, bytes);
}

// Nor can what the server says to it, nor either side's size.
TEST_F(Handover, TheServersMessagesCannotBeWrittenByAWorker) {
  Worker worker = Join();
  const int to_worker = worker.fds[3].get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, to_worker, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(to_worker, 0), 0);
  EXPECT_NE(::ftruncate(worker.fds[2].get(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(Handover, AGradientIsReadWhereItWasWritten) {
  Worker worker = Join();
  const SharedMemory slot =
      SharedMemory::Map(std::move(worker.fds[1]), SharedMemory::Access::kReadWrite);
  slot.writable_floats()[kFloats / 2] = 7;
  Push(worker, 1);
  const FromWorker event = Next();
  ASSERT_EQ(event.kind, FromWorker::Kind::kMessage);
  ASSERT_EQ(event.payload.floats().size(), kFloats / 2);
  EXPECT_EQ(event.payload.floats()[0], 7);
  // The slot outlives its worker while a payload refers to it.
  worker.Die();
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  EXPECT_EQ(event.payload.floats()[0], 7);
}

TEST_F(Handover, EachConnectionHasASlotOfItsOwn) {
  Worker first = Join();
  const SharedMemory old_slot =
      SharedMemory::Map(std::move(first.fds[1]), SharedMemory::Access::kReadWrite);
  first.Die();  // its memory may still be written by somebody
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  Worker second = Join();
  EXPECT_NE(second.peer, first.peer);
  old_slot.writable_floats()[0] = 13;
  Push(second, 0);
  const FromWorker event = Next();
  ASSERT_EQ(event.payload.floats().size(), kFloats / 2);
  EXPECT_EQ(event.payload.floats()[0], 0);
}

TEST_F(Handover, APartThatIsNotTheWorkersHasNoFloats) {
  Worker worker = Join();
  Push(worker, 0, 1);
  Push(worker, 0xffffffff);
  EXPECT_EQ(Next().payload.bytes, 0u);
  EXPECT_EQ(Next().payload.bytes, 0u);
}

// What the ring has no room for waits at the server, and comes in order.
TEST_F(Handover, AFloodWaitsForRoom) {
  Worker worker = Join();
  constexpr int kMessages = 90;  // together more than twice what the ring holds
  for (int i = 0; i < kMessages; ++i) {
    wire::ServerMessage message;
    message.mutable_stop()->set_reason(std::string(2000, static_cast<char>('!' + i)));
    ASSERT_EQ(link_->Send(worker.peer, message, {}), SendResult::kQueued);
  }
  link_->Deliver();
  for (int i = 0; i < kMessages; ++i) {
    std::string bytes;
    std::vector<UniqueFd> fds;
    if (worker.connection.Receive(false, bytes, fds) == LocalConnection::Status::kNothing) {
      EXPECT_TRUE(link_->PrepareToSleep());  // there is room: the server writes
      ASSERT_EQ(worker.connection.Receive(false, bytes, fds), LocalConnection::Status::kMessage);
    }
    wire::ServerMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    EXPECT_EQ(message.stop().reason(), std::string(2000, static_cast<char>('!' + i)));
  }
}

// A worker that takes nothing is given up before its messages fill the server's memory.
TEST_F(Handover, AWorkerThatTakesNothingIsGivenUp) {
  Worker worker = Join();
  wire::ServerMessage message;
  message.mutable_stop()->set_reason(std::string(2000, 'x'));
  int taken = 0;
  SendResult sent;
  while ((sent = link_->Send(worker.peer, message, {})) == SendResult::kQueued && taken < 1000) {
    ++taken;
  }
  EXPECT_EQ(sent, SendResult::kFull);
  EXPECT_GT(taken, 100);  // max_queued_messages
  EXPECT_LT(taken, 200);
}

// Its last words come before its loss, also where the server learns of that first.
TEST_F(Handover, WhatAWorkerSaidBeforeItDiedIsReceived) {
  PeerId peer;
  {
    Worker worker = Join();
    peer = worker.peer;
    Push(worker, 0);
    Push(worker, 1);
  }
  wire::ServerMessage message;
  message.mutable_beat();
  EXPECT_EQ(Next().message.gradient_part().chunk(), 0u);
  (void)link_->Send(peer, message, {});  // queued or gone, as the link has looked at the socket
  link_->Deliver();
  EXPECT_EQ(Next().message.gradient_part().chunk(), 1u);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  EXPECT_EQ(link_->Send(peer, message, {}), SendResult::kGone);
}

// A server that sleeps is woken by the first message, and by no more of them.
TEST_F(Handover, TheBellRingsOnce) {
  Worker worker = Join();
  pollfd fd{link_->fd(), POLLIN, 0};
  EXPECT_FALSE(link_->Receive());
  Push(worker, 0);  // nobody sleeps
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  EXPECT_FALSE(link_->PrepareToSleep()) << "there is a message";
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMessage);
  ASSERT_TRUE(link_->PrepareToSleep());
  Push(worker, 0);
  Push(worker, 1);
  EXPECT_EQ(::poll(&fd, 1, 5000), 1);
  EXPECT_EQ(Next().message.gradient_part().chunk(), 0u);
  EXPECT_EQ(Next().message.gradient_part().chunk(), 1u);
  EXPECT_EQ(::poll(&fd, 1, 0), 0) << "the bell of the second message";
}

// The last words of a worker come before its loss.
TEST_F(Handover, LastWordsAreHeard) {
  Worker worker = Join();
  Push(worker, 0);
  Push(worker, 1);
  worker.Die();
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMessage);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMessage);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
}

// Somebody who goes on writing after the connection has ended is not listened to for ever.
TEST_F(Handover, NobodyTalksOnAfterTheEnd) {
  Worker worker = Join();
  const SharedMemory memory =
      SharedMemory::Map(UniqueFd(::dup(worker.fds[2].get())), SharedMemory::Access::kReadWrite);
  RingMemory& ring = *reinterpret_cast<RingMemory*>(memory.writable_floats().data());
  const auto talk = [&] {  // a message without content
    const uint64_t at = ring.written;
    for (uint64_t i = 0; i < 4; ++i) ring.ring[(at + i) % RingMemory::kBytes] = 0;
    ring.written = at + 4;
  };
  worker.Die();
  talk();
  EXPECT_FALSE(link_->PrepareToSleep()) << "so that the socket is looked at";
  int messages = 0;
  for (FromWorker event = Next(); event.kind == FromWorker::Kind::kMessage; event = Next()) {
    ASSERT_LT(++messages, 100);
    talk();
  }
  EXPECT_EQ(messages, 1) << "the last word before the end was seen";
}

// Whatever a worker writes into the memory of its messages: the server reads nothing beyond it,
// and the worker is lost.
TEST_F(Handover, NonsenseInMemoryLosesTheWorker) {
  constexpr uint64_t kLies[] = {RingMemory::kBytes + 1, uint64_t{1} << 63, ~uint64_t{0}, 3};
  for (const uint64_t lie : kLies) {
    Worker worker = Join();
    Worker other = Join();
    const SharedMemory memory =
        SharedMemory::Map(UniqueFd(::dup(worker.fds[2].get())), SharedMemory::Access::kReadWrite);
    reinterpret_cast<RingMemory*>(memory.writable_floats().data())->written = lie;
    EXPECT_EQ(Next().kind, FromWorker::Kind::kMalformed) << lie;
    const FromWorker lost = Next();
    EXPECT_EQ(lost.kind, FromWorker::Kind::kLost) << lie;
    EXPECT_EQ(lost.peer, worker.peer);
    Push(other, 1);
    EXPECT_EQ(Next().message.gradient_part().chunk(), 1u) << "another worker's";
    other.Die();
    EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  }
}

// Impossible counts of what it has taken do not make the server write beyond its ring.
TEST_F(Handover, AWorkerThatTookTooMuchIsLost) {
  Worker worker = Join();
  const SharedMemory memory =
      SharedMemory::Map(UniqueFd(::dup(worker.fds[2].get())), SharedMemory::Access::kReadWrite);
  reinterpret_cast<RingMemory*>(memory.writable_floats().data())->taken = uint64_t{1} << 40;
  wire::ServerMessage message;
  message.mutable_stop()->set_reason(std::string(2000, 'x'));
  for (int i = 0; i < 90; ++i) (void)link_->Send(worker.peer, message, {});
  link_->Deliver();
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMalformed);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
}

class CrowdedHandover : public Handover {
 protected:
  CrowdedHandover() : Handover({.max_queued_messages = 100, .max_local_peers = 3}) {}

  // The server closes the connection, and learns nothing of it.
  ::testing::AssertionResult IsClosed(const UniqueFd& fd) {
    for (int i = 0; i < 500; ++i) {
      if (link_->Receive()) return ::testing::AssertionFailure() << "something came of it";
      pollfd closed{fd.get(), POLLIN, 0};
      char byte;
      if (::poll(&closed, 1, 10) == 1 && ::recv(fd.get(), &byte, 1, 0) <= 0) {
        return ::testing::AssertionSuccess();
      }
    }
    return ::testing::AssertionFailure() << "still open";
  }
};

// Strangers who say nothing take up places. Who comes too late is closed, those who are there go
// on, and who leaves makes room.
TEST_F(CrowdedHandover, ConnectionsHaveALimit) {
  Worker worker = Join();
  UniqueFd first = ConnectRaw(endpoint_);
  const UniqueFd second = ConnectRaw(endpoint_);
  for (int i = 0; i < 3; ++i) {
    const UniqueFd late = ConnectRaw(endpoint_);
    (void)::send(late.get(), "abcd", 4, MSG_NOSIGNAL);
    ASSERT_TRUE(IsClosed(late));
    Push(worker, 1);
    EXPECT_EQ(Next().message.gradient_part().chunk(), 1u);
  }
  first.Reset();
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  Worker other = Join();
  Push(other, 1);
  EXPECT_EQ(Next().peer, other.peer);
  const UniqueFd late = ConnectRaw(endpoint_);
  EXPECT_TRUE(IsClosed(late)) << "it is full again";
}

TEST_F(Handover, AnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
    const UniqueFd fd = ConnectRaw(endpoint_);
    (void)::send(fd.get(), "abcd", 4, MSG_NOSIGNAL);
    pollfd closed{fd.get(), POLLIN, 0};
    (void)::poll(&closed, 1, 5000);
    char byte;
    ::_exit(::recv(fd.get(), &byte, 1, 0) <= 0 ? 0 : 4);
  }
  int status = -1;
  for (int i = 0; i < 500 && ::waitpid(child, &status, WNOHANG) == 0; ++i) {
    EXPECT_FALSE(link_->Receive()) << "a message of another user came through";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A child that listens at `endpoint` as nobody. It reads what it is told until Stop.
class ForeignServer {
 public:
  explicit ForeignServer(const std::string& endpoint) {
    int ready[2], stop[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(stop, O_CLOEXEC), 0);
    const UniqueFd ready_in(ready[0]);
    UniqueFd ready_out(ready[1]), stop_in(stop[0]);
    stop_.Reset(stop[1]);
    const LocalAddress address(endpoint);
    child_ = ::fork();
    if (child_ == 0) {
      stop_.Reset();
      Serve(address, ready_out.get(), stop_in.get());
    }
    ready_out.Reset();
    char byte;
    EXPECT_EQ(::read(ready_in.get(), &byte, 1), 1) << "it does not listen";
  }
  ~ForeignServer() { (void)Stop(); }

  enum Code { kNobodyCame = 0, kCameAndSaidNothing = 1, kSaidSomething = 2, kFailed = 3 };
  // What it has seen.
  int Stop() {
    stop_.Reset();
    int status = -1;
    if (child_ > 0) ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] static void Serve(const LocalAddress& address, int ready, int stop) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(kFailed);
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (::bind(listener, address.get(), address.size) != 0 || ::listen(listener, 100) != 0 ||
        ::write(ready, "r", 1) != 1) {
      ::_exit(kFailed);
    }
    for (int seen = kNobodyCame;;) {
      pollfd fds[] = {{listener, POLLIN, 0}, {stop, POLLIN, 0}};
      (void)::poll(fds, 2, -1);
      const int guest = ::accept(listener, nullptr, nullptr);
      if (guest >= 0) {
        seen = std::max<int>(seen, kCameAndSaidNothing);
        char byte;
        // It stays open until the guest speaks or leaves.
        if (::recv(guest, &byte, 1, 0) > 0) ::_exit(kSaidSomething);
        ::close(guest);
      } else if (fds[1].revents != 0) {
        ::_exit(seen);
      }
    }
  }

  pid_t child_ = -1;
  UniqueFd stop_;
};

// Nor may a worker tell its token to whoever took the server's name.
TEST(LocalLink, AnotherUsersServerIsToldNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string endpoint = UniqueEndpoint();
  ForeignServer server(endpoint);
  try {
    (void)ConnectLocal(endpoint, kSmallLink);
    ADD_FAILURE() << "connected to another user's server";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kPeerFailed);
    EXPECT_NE(std::string(error.what()).find("user 65534 listens there, expected user 0"),
              std::string::npos)
        << error.what();
  }
  ClientOptions options = WorkerOptions(SmallConfig(1, 1), endpoint, 0);
  options.start_s = 0.1;
  EXPECT_THROW(Client{options}, Error);
  EXPECT_EQ(server.Stop(), ForeignServer::kCameAndSaidNothing);
}

TEST(LocalLink, NonsenseChangesNothing) {
  const auto gradient = [](int64_t step, int64_t slice, size_t i) {
    return 0.01f * static_cast<float>(step + slice) + static_cast<float>(i % 13);
  };
  const auto quiet = [&] {
    TestJob job(SmallConfig(2, 3), "local");
    RunWorkers(job, {.gradient = gradient});
    return job.Finish().weights_hash;
  };
  TestJob job(SmallConfig(2, 3), "local");
  std::vector<UniqueFd> strangers;
  std::mt19937 random(7);
  for (int s = 0; s < 8; ++s) {
    strangers.push_back(ConnectRaw(job.endpoint()));
    for (int i = 0; i < 20; ++i) {
      std::string bytes(random() % 300, 0);
      for (char& c : bytes) c = static_cast<char>(random());
      if (i % 3 == 0) bytes.assign(1, 0);  // a doorbell
      (void)::send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    // Descriptors that nobody asked for.
    PacketSocket giver(UniqueFd(::dup(strangers.back().get())));
    const int fds[] = {0, 1, 2};
    giver.Append("nonsense", fds);
    (void)giver.Flush();
    if (s % 2 == 0) strangers.pop_back();
  }
  RunWorkers(job, {.gradient = gradient});
  const ServerResult result = job.Finish();
  EXPECT_EQ(result.weights_hash, quiet());
  EXPECT_GT(result.dropped_messages, 8u);
}

TEST(LocalLink, AutoUsesSharedMemory) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_cluster()->set_transport(config::Cluster::AUTO);
  const auto gradient = [](int64_t, int64_t, size_t) { return 1.0f; };
  TestJob job(config);
  const auto client = Connect(job.endpoint(), JobOf(job.token()), config::Cluster::AUTO,
                              std::chrono::seconds(5), job.OptionsFor(0).link);
  EXPECT_TRUE(client->any_thread()) << "not the local link";
  RunWorkers(job, {.gradient = gradient});
  EXPECT_EQ(job.Finish().steps, 3);
}

// A Hello from `client` reaches `server`.
::testing::AssertionResult Reaches(ClientLink& client, ServerLink& server) {
  wire::WorkerMessage hello;
  hello.mutable_hello();
  if (!client.Send(hello, {})) return ::testing::AssertionFailure() << "not sent";
  std::optional<FromWorker> event;
  for (int i = 0; i < 500 && !event; ++i) {
    event = server.Receive();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (event && event->message.has_hello()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "not received";
}

// A server that has no memory to hand over: its workers come back over ZeroMQ, with the same bits.
TEST(LocalLink, AHandOverThatFailsIsNoFailureOfTheJob) {
  const auto gradient = [](int64_t step, int64_t slice, size_t i) { return Rough(step, slice, i); };
  config::Config config = SmallConfig(2, 4);
  const auto hash = [&](bool no_memory) {
    TestJob job(config);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    if (no_memory) {  // shared memory counts as a file
      IgnoreFileSizeSignal();
      const rlimit small{1024, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    RunWorkers(job, {.gradient = gradient});
    ::setrlimit(RLIMIT_FSIZE, &before);
    return job.Finish().weights_hash;
  };
  const uint64_t usual = hash(false);
  config.mutable_cluster()->set_transport(config::Cluster::AUTO);
  EXPECT_EQ(hash(true), usual);
}

TEST(LocalLink, AWorkerWhoseServerHasNoneUsesZeroMq) {
  const std::string endpoint = "ipc://@" + UniqueEndpoint().substr(9);
  const uint64_t job = std::random_device{}();
  // The worker starts first.
  auto client = std::async(std::launch::async, [&] {
    return Connect(endpoint, job, config::Cluster::AUTO, std::chrono::seconds(20), SmallLink());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto server = Listen(endpoint, job, config::Cluster::IPC, SmallLink());
  const auto link = client.get();
  EXPECT_FALSE(link->any_thread());
  EXPECT_TRUE(Reaches(*link, *server));
}

TEST(LocalLink, AServerWhoseNameIsTakenUsesZeroMq) {
  const std::string endpoint = "ipc://@" + UniqueEndpoint().substr(9);
  const uint64_t job = std::random_device{}();
  // Held by somebody who is no server.
  const LocalAddress address(LocalEndpoint(job));
  const UniqueFd holder(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(holder.get(), address.get(), address.size), 0);
  const auto server = Listen(endpoint, job, config::Cluster::AUTO, SmallLink());
  EXPECT_EQ(server->endpoint(), endpoint);
  const auto client =
      Connect(endpoint, job, config::Cluster::IPC, std::chrono::seconds(1), SmallLink());
  EXPECT_TRUE(Reaches(*client, *server));
}

TEST(LocalLink, ASecondJobWithTheSameTokenIsRefused) {
  const uint64_t job = std::random_device{}();
  const auto listen = [&] {
    return Listen("tcp://127.0.0.1:*", job, config::Cluster::AUTO, SmallLink());
  };
  const auto first = listen();
  try {
    (void)listen();
    ADD_FAILURE() << "two servers with one token";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("same token"), std::string::npos) << error.what();
  }
}

TEST(LocalLink, NobodyThereIsSaidInTime) {
  const std::string endpoint = "ipc://@" + UniqueEndpoint().substr(9);
  try {
    (void)Connect(endpoint, 1, config::Cluster::AUTO, std::chrono::milliseconds(20), SmallLink());
    ADD_FAILURE() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDeadline);
    EXPECT_NE(std::string(error.what()).find(endpoint), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace muster::testing
