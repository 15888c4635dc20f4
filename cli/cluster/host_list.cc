#include "cli/cluster/host_list.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/leading_zero.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

constexpr uint32_t kMostSlots = 1024;  // the limit of cluster.workers

// A host that is named twice is more often a mistake than a wish for the sum.
void AddHost(const std::string& origin, Host host, std::vector<Host>& hosts) {
  const auto before = std::ranges::find(hosts, host.name, &Host::name);
  if (before != hosts.end()) {
    throw Error(ExitCode::kUsage,
                "{}: host {} is named twice, with {} and {} slots; expected it once, such as {}:{}",
                origin, host.name, before->slots, host.slots, host.name,
                before->slots + host.slots);
  }
  hosts.push_back(std::move(host));
}

Host ParseHost(const std::string& origin, const std::string& text) {
  // The brackets of an IPv6 address separate its colons from that of the slots.
  const std::vector<std::string> found = FirstMatch(
      "^(([^]@:[:space:]]+@)?(\\[([0-9a-fA-F:.%]+)\\]|[^]@:[:space:]]+))(:([0-9]{1,9}))?$", text);
  if (found.empty()) {
    throw Error(ExitCode::kUsage, "{}: expected HOST or HOST:SLOTS, such as a:4, got {}", origin,
                text.empty() ? "nothing" : Shown(text));
  }
  Host host{.name = found[4].empty() ? found[1] : found[2] + found[4]};
  // ssh takes the host out of USER@HOST, and gives both to commands such as ProxyCommand.
  if (host.name[0] == '-' || host.name.find("@-") != std::string::npos) {
    throw Error(ExitCode::kUsage,
                "{}: expected the name of a host, got {}, which ssh would take for an option",
                origin, Shown(host.name));
  }
  // A name may become part of a command of the user's ssh configuration, such as ProxyCommand.
  if (FirstMatch("^([A-Za-z0-9._%+-]+@)?[A-Za-z0-9._%:-]+$", host.name).empty()) {
    throw Error(ExitCode::kUsage,
                "{}: expected the name of a host, of letters, digits and ._%-, such as me@lab-3, "
                "got {}",
                origin, Shown(host.name));
  }
  if (found[6].empty()) return host;
  if (HasLeadingZero(found[6])) {
    throw Error(ExitCode::kUsage, "{}: host {}: {}", origin, host.name,
                LeadingZeroTrouble(found[6]));
  }
  const unsigned long slots = std::stoul(found[6]);
  if (slots < 1 || slots > kMostSlots) {
    throw Error(ExitCode::kUsage,
                "{}: host {}: expected 1 to {} slots (workers), got {}; leave out a host that "
                "gets none",
                origin, host.name, kMostSlots, found[6]);
  }
  host.slots = static_cast<uint32_t>(slots);
  return host;
}

std::vector<Host> CheckedList(const std::string& origin, std::vector<Host> hosts) {
  if (hosts.empty()) {
    throw Error(ExitCode::kUsage, "{}: expected at least one host, such as a:4, got none", origin);
  }
  if (const uint32_t all = SlotsOf(hosts); all > kMostSlots) {
    throw Error(ExitCode::kUsage, "{}: expected at most {} slots in all, got {}", origin,
                kMostSlots, all);
  }
  return hosts;
}

}  // namespace

std::vector<Host> ParseHosts(const std::string& origin, const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    AddHost(origin, ParseHost(origin, part), hosts);
  }
  if (text.ends_with(',')) (void)ParseHost(origin, "");
  return CheckedList(origin, std::move(hosts));
}

std::vector<Host> ReadHostfile(const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(ReadTextFile(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string origin = "line " + std::to_string(++number) + " of " + path;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // a byte order mark
    if (line.find('\0') != std::string::npos) {
      throw Error(ExitCode::kUsage, "{}: expected text, got a zero byte", origin);
    }
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    if (words >> slots) {
      const std::vector<std::string> found = FirstMatch("^slots=([0-9]{1,9})$", slots);
      if (found.empty() || (words >> more) || FirstMatch(":[0-9]+$", name).size() > 0) {
        throw Error(ExitCode::kUsage, "{}: expected HOST slots=N or HOST:N, got {}", origin,
                    Shown(line));
      }
      if (name.find(':') != std::string::npos && name.back() != ']')
        name.insert(0, "[").append("]");
      name += ":" + found[1];
    }
    AddHost(origin, ParseHost(origin, name), hosts);
  }
  return CheckedList(path, std::move(hosts));
}

void FindHere(const std::string& origin, std::vector<Host>& hosts) {
  const Host* first = nullptr;
  for (Host& host : hosts) {
    host.here = IsThisHost(host.name);
    if (!host.here) continue;
    if (first != nullptr) {
      throw Error(ExitCode::kUsage,
                  "{}: {} and {} both name this host; expected it once, such as {}:{}", origin,
                  first->name, host.name, first->name, first->slots + host.slots);
    }
    first = &host;
  }
}

uint32_t SlotsOf(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0u,
                         [](uint32_t sum, const Host& host) { return sum + host.slots; });
}

bool IsThisHost(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at != std::string::npos) {
    const passwd* const me = ::getpwuid(::geteuid());
    if (me == nullptr || name.substr(0, at) != me->pw_name) return false;
  }
  const std::string host = at == std::string::npos ? name : name.substr(at + 1);
  if (host == "localhost" || host == HostName()) return true;
  try {
    return ResolvedAddress(TcpAddress{.host = host}).of_this_host();
  } catch (const Error&) {
    return false;  // a name that only ssh knows
  }
}

}  // namespace muster
