#include "tests/e2e/hand_job.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace muster::testing {

namespace fs = std::filesystem;

HandJob::HandJob() {
  std::random_device random;
  for (int i = 0; i < 4; ++i) token_ += fmt::format("{:08x}", random());
  WriteToken("token", token_);
  std::string config = Slurp(Path("tiny.txtpb"));
  config.replace(config.find("data {"), 6, "data { dir: \"" + Path("data").string() + "\"");
  std::ofstream(Path("config.txtpb")) << config;
}

void HandJob::WriteToken(const std::string& name, const std::string& token) const {
  std::ofstream(Path(name)) << token << "\n";
  fs::permissions(Path(name), fs::perms::owner_read | fs::perms::owner_write);
}

void HandJob::WriteConfigWith(const std::string& name, const std::string& text,
                              const std::string& replacement) const {
  std::string config = Slurp(Path("config.txtpb"));
  const size_t at = config.find(text);
  ASSERT_NE(at, std::string::npos) << text;
  config.replace(at, text.size(), replacement);
  std::ofstream(Path(name)) << config;
}

std::unique_ptr<Process> HandJob::Server(const Words& more, const ProcessOptions& options) {
  Words words{"muster", "server", Path("config.txtpb"), "--run-dir", Path("run")};
  words.insert(words.end(), more.begin(), more.end());
  fs::remove(Path("server.log"));  // it may hold the endpoint of an earlier server
  return std::make_unique<Process>(words, Path("server.log"), options);
}

std::string HandJob::Endpoint(const Process& server) const {
  constexpr std::string_view kBefore = "Listening at ";
  std::string endpoint;
  (void)Eventually(10, [&] {
    const std::string log = server.Log();
    const size_t at = log.find(kBefore);
    if (at == std::string::npos || log.find('\n', at) == std::string::npos) return false;
    endpoint = log.substr(at + kBefore.size());
    endpoint = endpoint.substr(0, endpoint.find_first_of(" \n"));
    return true;
  });
  EXPECT_NE(endpoint, "") << server.Log();
  return endpoint;
}

std::unique_ptr<Process> HandJob::Worker(int rank, const std::string& endpoint, const Words& more,
                                         const ProcessOptions& options, const std::string& config) {
  Words words{"muster",     "worker", Path(config),   "--rank",   std::to_string(rank),
              "--endpoint", endpoint, "--token-file", TokenFile()};
  words.insert(words.end(), more.begin(), more.end());
  return PlainWorker(words, options);
}

std::unique_ptr<Process> HandJob::PlainWorker(const Words& words, const ProcessOptions& options) {
  return std::make_unique<Process>(words, Path("worker" + std::to_string(workers_++) + ".log"),
                                   options);
}

std::string HandJob::LaunchedHash() {
  const Outcome outcome = Succeeded(Launch({}));
  return outcome.hash();
}

int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  (void)::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

}  // namespace muster::testing
