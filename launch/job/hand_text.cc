#include "launch/job/hand_text.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/shell_word.h"
#include "common/link/protocol.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// What a reader of the first lines must know about who can reach the server.
std::vector<std::string> Notes(const ListenAddress& address, bool encrypted) {
  if (!IsTcp(address.bind)) return {};
  if (encrypted) {
    return {
        "  Connections are encrypted, with keys that come from the token: whoever has it can join, "
        "and nobody else."};
  }
  const ResolvedAddress listening(TcpAddress::Parse(address.bind));
  if (!listening.loopback()) {
    return {
        "  Other hosts can reach it, and what it sends, the token included, is not encrypted, as "
        "cluster.encryption=NONE",
        "  wants it: use a network that you trust."};
  }
  const std::string host = TcpAddress::Parse(address.endpoint).host;
  const bool numeric = host.find_first_not_of("0123456789.:") == std::string::npos;
  if (numeric || host == "localhost" || address.bind != address.endpoint) return {};
  return {
      fmt::format("  {} means {} on this host, which no other host can reach; for those: --bind "
                  "with an address of the network",
                  host, listening.ToEndpoint())};
}

}  // namespace

std::vector<std::string> HandLines(const HandAddress& where, int workers, const RunDir& dir,
                                   const std::string& token_file) {
  const auto& [address, endpoint, encrypted] = where;
  const bool elsewhere = address.bind != address.endpoint;
  std::vector<std::string> lines{fmt::format(
      "Listening at {}{}", endpoint, elsewhere ? fmt::format(" (bound to {})", address.bind) : "")};
  for (std::string& note : Notes(address, encrypted)) lines.push_back(std::move(note));
  lines.push_back(workers == 1
                      ? "Start the worker:"
                      : fmt::format("Start the workers, with the ranks 0 to {}:", workers - 1));
  // The worker may be started in another folder than the server's.
  const auto absolute = [](const std::string& path) {
    return ShellWord(std::filesystem::absolute(path).lexically_normal().string());
  };
  lines.push_back(fmt::format("  muster worker {} --rank 0 --endpoint {}{}",
                              absolute(dir.ConfigPath()), endpoint,
                              token_file.empty() ? "" : " --token-file " + absolute(token_file)));
  std::string files = "config.txtpb";
  if (token_file.empty()) {
    lines.push_back(fmt::format("  and {} set as it is here.", kTokenVariable));
  } else {
    files = "both files";
  }
  if (IsTcp(endpoint)) {
    lines.push_back(
        fmt::format("  On another host: copy {}, and say where its data is (--data DIR).", files));
  }
  return lines;
}

}  // namespace muster
