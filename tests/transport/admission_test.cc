// Only peers with the token, and on this host only this user, can send a message.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <zmq.hpp>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/link/tcp_address.h"
#include "common/transport/zmq/zmq_admission.h"
#include "common/transport/zmq/zmq_link.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

const LinkOptions kTcp{
    .max_message_bytes = 1 << 20, .max_queued_messages = 10, .max_received_messages = 10};

LinkOptions WithToken(const std::string& token) {
  LinkOptions options = kTcp;
  options.token = token;
  return options;
}

// The server's first bytes, or "" if it has closed the connection.
std::string FirstWords(int fd) {
  std::string bytes(64, 0);
  pollfd ready{fd, POLLIN, 0};
  if (::poll(&ready, 1, 20000) != 1) return "nothing came";
  const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
  return bytes.substr(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
}

// A frame of the largest size. Without the token no message is read, whatever the mechanism.
TEST(Admission, WithoutTheTokenNothingArrives) {
  const auto server = ListenZmq("tcp://127.0.0.1:*", WithToken(TestToken()));
  const auto wrong = ConnectZmq(server->endpoint(), WithToken("0123456789abcdef0123456789abcdee"));
  zmq::context_t context;
  zmq::socket_t none(context, zmq::socket_type::dealer);  // ZMTP's NULL
  none.set(zmq::sockopt::linger, 0);
  none.connect(server->endpoint());
  zmq::socket_t other(context, zmq::socket_type::dealer);  // the token, with another user name
  other.set(zmq::sockopt::linger, 0);
  PresentToken(other, {.token = TestToken()});
  other.set(zmq::sockopt::plain_username, "other");
  other.connect(server->endpoint());
  wire::WorkerMessage message;
  message.mutable_hello();
  for (zmq::socket_t* const socket : {&none, &other}) {
    (void)socket->send(zmq::buffer(message.SerializeAsString()), zmq::send_flags::dontwait);
  }
  bool refused = false;
  // The refusal may come before or after it has sent data.
  const auto refuses = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      refused = true;
      EXPECT_EQ(error.code(), ExitCode::kRefused);
      EXPECT_NE(std::string(error.what()).find("token is wrong"), std::string::npos);
    }
  };
  refuses([&] { EXPECT_TRUE(wrong->Send(message, {})); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!refused && std::chrono::steady_clock::now() < deadline) {
    if (const auto event = server->Receive()) {
      ASSERT_EQ(event->kind, FromWorker::Kind::kRefused);
      // A connection that has ended before the check has no address.
      EXPECT_THAT(event->refused, ::testing::AnyOf("127.0.0.1", "an unknown peer"));
    }
    refuses([&] { EXPECT_FALSE(wrong->Receive()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(refused);
  // Its data does arrive, and before any data of the others.
  const auto member = ConnectZmq(server->endpoint(), WithToken(TestToken()));
  message.mutable_heartbeat();
  ASSERT_TRUE(member->Send(message, {}));
  std::optional<FromWorker> event;
  while (!(event && event->kind == FromWorker::Kind::kMessage) &&
         std::chrono::steady_clock::now() < deadline) {
    event = server->Receive();
  }
  ASSERT_TRUE(event);
  EXPECT_TRUE(event->message.has_heartbeat());
}

// A flood causes few log lines, and its contents are not in them.
TEST(Admission, LinesThatOthersCauseAreFewAndPlain) {
  RareLine line;
  int lines = 0;
  for (int i = 0; i < 1000000; ++i) lines += line.Count() ? 1 : 0;
  EXPECT_EQ(lines, 20 + 15);  // 32, 64 … 524,288
  EXPECT_EQ(line.count(), 1000000u);
  EXPECT_EQ(Printable("host\x1b[31m\n\xff name~"), "host?[31m?? name~");
  EXPECT_EQ(Printable(std::string(500, 'a')), std::string(500, 'a'));
  EXPECT_LT(Printable(std::string(4 << 20, 'a')).size(), 510u);
}

// A connection that sends nothing, or too little, is closed.
TEST(Admission, ASilentConnectionIsClosed) {
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
    EXPECT_EQ(words, "") << "the connection is still open";
  }
}

// The kernel identifies the user who connects to a Unix-domain socket. Other users get no greeting.
TEST(Admission, AnotherUserIsNotGreeted) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
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
  RunWorkers(job, {.gradient = [](int64_t, int64_t, size_t) { return 1.0f; }});
  EXPECT_EQ(job.Finish().steps, 3);
}

}  // namespace
}  // namespace muster::testing
