// The local link and strangers: another user's server, garbage on the socket.
#include "common/transport/local/local_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>

#include "common/transport/local/packet_socket.h"
#include "tests/job/raw_local_link.h"
#include "tests/transport/small_link.h"

namespace muster::testing {
namespace {

// A child process that listens at `endpoint` as user nobody. It reads all messages until Stop.
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
    EXPECT_EQ(::read(ready_in.get(), &byte, 1), 1) << "it is not listening";
  }
  ~ForeignServer() { (void)Stop(); }

  enum Code { kNobodyCame = 0, kCameAndSaidNothing = 1, kSaidSomething = 2, kFailed = 3 };
  // Returns what it observed.
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
        // Stays open until the peer sends something or disconnects.
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

// A worker does not send its token to another user that took the server's name.
TEST(LocalLink, AnotherUsersServerIsToldNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string endpoint = UniqueLocalEndpoint();
  ForeignServer server(endpoint);
  try {
    (void)ConnectLocal(endpoint, SmallLink());
    ADD_FAILURE() << "connected to another user's server";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kPeerFailed);
    EXPECT_NE(std::string(error.what()).find("belongs to user 65534, expected user 0"),
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
    // Unexpected descriptors.
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

}  // namespace
}  // namespace muster::testing
