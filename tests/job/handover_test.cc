// The memory shared by server and worker: which gradient buffer belongs to which worker, read-only
// memory, and workers that break the rules.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <thread>

#include "common/transport/local/local_link.h"
#include "tests/job/raw_local_link.h"

namespace muster::testing {
namespace {

constexpr size_t kMostWaiting = 200'000;

// The server's end, and the memory that a worker receives with Welcome, without the server's loop.
class Handover : public ::testing::Test {
 protected:
  explicit Handover(const LinkOptions& options = {.max_waiting_bytes = kMostWaiting})
      : weight_buffers_(RawWeights()),
        endpoint_(UniqueLocalEndpoint()),
        link_(ListenLocal(endpoint_, options)) {
    link_->ShareWeights(weight_buffers_);
  }

  FromWorker Next() {
    for (int i = 0; i < 500; ++i) {
      if (auto event = link_->Receive()) return std::move(*event);
      pollfd fd{link_->fd(), POLLIN, 0};
      if (link_->PrepareToSleep()) (void)::poll(&fd, 1, 10);
    }
    ADD_FAILURE() << "nothing arrived";
    return {};
  }

  struct Worker {
    LocalConnection connection;
    PeerId peer;
    std::vector<UniqueFd> fds;  // received with RawWelcome

    void Die() { connection = LocalConnection(PacketSocket(UniqueFd())); }
  };
  // Connects, sends a message and receives Welcome.
  Worker Join() {
    Worker worker{LocalConnection(PacketSocket(ConnectRaw(endpoint_))), 0, {}};
    wire::WorkerMessage hello;
    hello.mutable_hello();
    worker.connection.Append(hello.SerializeAsString());
    EXPECT_TRUE(worker.connection.Flush());
    worker.peer = Next().peer;
    const wire::ServerMessage welcome = RawWelcome();
    link_->ShareGradients(worker.peer, GradientLayoutOf(welcome.welcome()));
    EXPECT_EQ(link_->Send(worker.peer, welcome, {}), SendResult::kQueued);
    link_->Deliver();
    std::string message;
    pollfd fd{worker.connection.fd(), POLLIN, 0};
    (void)::poll(&fd, 1, 5000);
    EXPECT_EQ(worker.connection.Receive(true, message, worker.fds),
              LocalConnection::Status::kMessage);
    EXPECT_EQ(worker.fds.size(), 4u);
    AttachRaw(worker.connection, worker.fds);
    return worker;
  }

  static void Push(Worker& worker, uint32_t chunk, uint32_t buffer = 0) {
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_chunk(chunk);
    message.mutable_gradient_part()->set_buffer(buffer);
    worker.connection.Append(message.SerializeAsString());
    EXPECT_TRUE(worker.connection.Flush());
  }

  SharedMemory weight_buffers_;
  std::string endpoint_;
  std::unique_ptr<ServerLink> link_;
};

TEST_F(Handover, WeightsCannotBeWrittenByAWorker) {
  Worker worker = Join();
  const int weight_buffers = worker.fds[0].get();
  const size_t bytes = kRawBytes[0];
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, weight_buffers, 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, weight_buffers, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, bytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(::pwrite(weight_buffers, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  // Its size cannot be changed, which would make the server's own access fail.
  EXPECT_NE(::ftruncate(weight_buffers, 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(worker.fds[1].get(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  // The server can still write through its mapping, and the worker sees it.
  weight_buffers_.writable_floats()[3] = 42;
  EXPECT_EQ(static_cast<const float*>(mapped)[3], 42);
  ::munmap(mapped, bytes);
}

// GPU drivers lock the pages: then a worker may make its mapping writable.
class HandoverToGpus : public Handover {
 protected:
  HandoverToGpus() : Handover({.max_waiting_bytes = kMostWaiting, .locks_pages = true}) {}
};

TEST_F(HandoverToGpus, WeightsCanBeMadeWritable) {
  Worker worker = Join();
  void* const mapped = ::mmap(nullptr, kRawBytes[0], PROT_READ, MAP_SHARED, worker.fds[0].get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(::mprotect(mapped, kRawBytes[0], PROT_READ | PROT_WRITE), 0);
  ::munmap(mapped, kRawBytes[0]);
}

// A worker cannot write the server's messages, nor change the size of either side.
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
  const SharedMemory gradient_buffer =
      SharedMemory::Map(std::move(worker.fds[1]), SharedMemory::Access::kReadWrite);
  gradient_buffer.writable_floats()[kRawFloats / 2] = 7;
  Push(worker, 1);
  const FromWorker event = Next();
  ASSERT_EQ(event.kind, FromWorker::Kind::kMessage);
  ASSERT_EQ(event.payload.floats().size(), kRawFloats / 2);
  EXPECT_EQ(event.payload.floats()[0], 7);
  // The second one, in which nothing was reserved.
  gradient_buffer.writable_floats()[SharedArenaFloats(kRawFloats)] = 8;
  Push(worker, 0, 1);
  EXPECT_EQ(Next().payload.floats()[0], 8);
  // The gradient buffer outlives its worker while a payload refers to it.
  worker.Die();
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  EXPECT_EQ(event.payload.floats()[0], 7);
}

// Even if a connection were welcomed again, it would keep its memory.
TEST_F(Handover, MemoryIsHandedOverOnce) {
  Worker worker = Join();
  const wire::ServerMessage welcome = RawWelcome();
  link_->ShareGradients(worker.peer, GradientLayoutOf(welcome.welcome()));
  EXPECT_EQ(link_->Send(worker.peer, welcome, {}), SendResult::kQueued);
  link_->Deliver();
  std::string message;
  std::vector<UniqueFd> fds;
  EXPECT_EQ(worker.connection.Receive(true, message, fds), LocalConnection::Status::kMessage);
  EXPECT_TRUE(fds.empty());
  EXPECT_EQ(message, welcome.SerializeAsString());
  Push(worker, 1);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMessage);
}

TEST_F(Handover, EachConnectionHasGradientBuffersOfItsOwn) {
  Worker first = Join();
  const SharedMemory old_buffer =
      SharedMemory::Map(std::move(first.fds[1]), SharedMemory::Access::kReadWrite);
  first.Die();  // another process may still write to its memory
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  Worker second = Join();
  EXPECT_NE(second.peer, first.peer);
  old_buffer.writable_floats()[0] = 13;
  Push(second, 0);
  const FromWorker event = Next();
  ASSERT_EQ(event.payload.floats().size(), kRawFloats / 2);
  EXPECT_EQ(event.payload.floats()[0], 0);
}

TEST_F(Handover, AnArenaThatTheWorkerDoesNotHaveHasNoFloats) {
  Worker worker = Join();
  Push(worker, 0, 2);
  Push(worker, 0, 0xffffffff);
  Push(worker, 0xffffffff);
  EXPECT_EQ(Next().payload.bytes, 0u);
  EXPECT_EQ(Next().payload.bytes, 0u);
  EXPECT_EQ(Next().payload.bytes, 0u);
}

// Messages that do not fit into the ring wait at the server and arrive in order.
TEST_F(Handover, AFloodWaitsForRoom) {
  Worker worker = Join();
  constexpr int kMessages = 90;  // together more than twice the ring's size
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
      EXPECT_TRUE(link_->PrepareToSleep());  // there is space, so the server writes
      ASSERT_EQ(worker.connection.Receive(false, bytes, fds), LocalConnection::Status::kMessage);
    }
    wire::ServerMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    EXPECT_EQ(message.stop().reason(), std::string(2000, static_cast<char>('!' + i)));
  }
}

// A worker that reads nothing is dropped before its messages fill the server's memory. It is still
// notified.
TEST_F(Handover, AWorkerThatTakesNothingIsGivenUpAndTold) {
  Worker worker = Join();
  wire::ServerMessage message;
  message.mutable_stop()->set_reason(std::string(2000, 'x'));
  size_t taken = 0;
  SendResult sent;
  while ((sent = link_->Send(worker.peer, message, {})) == SendResult::kQueued && taken < 1000) {
    ++taken;
  }
  EXPECT_EQ(sent, SendResult::kFull);
  EXPECT_GT(taken * 2000, kMostWaiting - 2000);
  EXPECT_LT(taken * 2000, kMostWaiting + RingMemory::kBytes);
  message.mutable_stop()->set_reason("last words");
  EXPECT_EQ(link_->Send(worker.peer, message, {}), SendResult::kFull) << "but still queued";
  link_->Deliver();
  message.Clear();
  for (size_t came = 0; message.stop().reason() != "last words"; ++came) {
    ASSERT_LT(came, taken + 2);
    std::string bytes;
    std::vector<UniqueFd> fds;
    while (worker.connection.Receive(false, bytes, fds) == LocalConnection::Status::kNothing) {
      EXPECT_TRUE(link_->PrepareToSleep());  // there is space, so the server writes
    }
    ASSERT_TRUE(message.ParseFromString(bytes));
  }
}

// Its last messages arrive before its loss, even if the server notices the loss first.
TEST_F(Handover, WhatAWorkerSaidBeforeItDiedIsReceived) {
  PeerId peer;
  {
    Worker worker = Join();
    peer = worker.peer;
    Push(worker, 0);
    Push(worker, 1);
  }
  wire::ServerMessage message;
  message.mutable_heartbeat();
  EXPECT_EQ(Next().message.gradient_part().chunk(), 0u);
  (void)link_->Send(peer, message,
                    {});  // queued or dropped, depending on whether the link has checked the socket
  link_->Deliver();
  EXPECT_EQ(Next().message.gradient_part().chunk(), 1u);
  EXPECT_EQ(Next().kind, FromWorker::Kind::kLost);
  EXPECT_EQ(link_->Send(peer, message, {}), SendResult::kGone);
}

// The first message wakes a sleeping server; later ones do not.
TEST_F(Handover, TheBellRingsOnce) {
  Worker worker = Join();
  pollfd fd{link_->fd(), POLLIN, 0};
  EXPECT_FALSE(link_->Receive());
  Push(worker, 0);  // the server is awake
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  EXPECT_FALSE(link_->PrepareToSleep()) << "a message is pending";
  EXPECT_EQ(Next().kind, FromWorker::Kind::kMessage);
  ASSERT_TRUE(link_->PrepareToSleep());
  Push(worker, 0);
  Push(worker, 1);
  EXPECT_EQ(::poll(&fd, 1, 5000), 1);
  EXPECT_EQ(Next().message.gradient_part().chunk(), 0u);
  EXPECT_EQ(Next().message.gradient_part().chunk(), 1u);
  EXPECT_EQ(::poll(&fd, 1, 0), 0) << "the second message must not wake the server";
}

// Messages that are written after the end of a connection are not read forever.
TEST_F(Handover, NobodyTalksOnAfterTheEnd) {
  Worker worker = Join();
  const SharedMemory memory = MapAgain(worker.fds[2], SharedMemory::Access::kReadWrite);
  RingMemory& ring = *reinterpret_cast<RingMemory*>(memory.writable_floats().data());
  const auto talk = [&] {  // a message without content
    const uint64_t at = ring.written;
    for (uint64_t i = 0; i < 4; ++i) ring.ring[(at + i) % RingMemory::kBytes] = 0;
    ring.written = at + 4;
  };
  worker.Die();
  talk();
  EXPECT_FALSE(link_->PrepareToSleep()) << "so that the socket is checked";
  int messages = 0;
  for (FromWorker event = Next(); event.kind == FromWorker::Kind::kMessage; event = Next()) {
    ASSERT_LT(++messages, 100);
    talk();
  }
  EXPECT_EQ(messages, 1) << "only the last message before the end";
}

// Whatever a worker writes into its message memory, the server does not read beyond it, and the
// worker is lost.
TEST_F(Handover, NonsenseInMemoryLosesTheWorker) {
  constexpr uint64_t kLies[] = {RingMemory::kBytes + 1, uint64_t{1} << 63, ~uint64_t{0}, 3};
  for (const uint64_t lie : kLies) {
    Worker worker = Join();
    Worker other = Join();
    const SharedMemory memory = MapAgain(worker.fds[2], SharedMemory::Access::kReadWrite);
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

// Impossible read counts do not make the server write beyond its ring.
TEST_F(Handover, AWorkerThatTookTooMuchIsLost) {
  Worker worker = Join();
  const SharedMemory memory = MapAgain(worker.fds[2], SharedMemory::Access::kReadWrite);
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
  CrowdedHandover() : Handover({.max_waiting_bytes = kMostWaiting, .max_local_peers = 3}) {}

  // Expects that the server closes the connection without receiving anything.
  ::testing::AssertionResult IsClosed(const UniqueFd& fd) {
    for (int i = 0; i < 500; ++i) {
      if (link_->Receive()) return ::testing::AssertionFailure() << "something was received";
      pollfd closed{fd.get(), POLLIN, 0};
      char byte;
      if (::poll(&closed, 1, 10) == 1 && ::recv(fd.get(), &byte, 1, 0) <= 0) {
        return ::testing::AssertionSuccess();
      }
    }
    return ::testing::AssertionFailure() << "still open";
  }
};

// Silent strangers occupy connections. Beyond the limit new ones are closed, existing ones
// continue, and one that leaves makes room.
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
  EXPECT_TRUE(IsClosed(late)) << "the limit is reached again";
}

TEST_F(Handover, AnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
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
    EXPECT_FALSE(link_->Receive()) << "a message of another user was received";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace muster::testing
