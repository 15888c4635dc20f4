#include "cli/hosts/host_check.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/process/token.h"
#include "cli/text/console.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kQuiet{5};  // before it says for whom it waits

class HostCheck {
 public:
  explicit HostCheck(const HostQuestion& question)
      : question_(question), listener_(question.address.address) {}

  std::vector<CheckedHost> Run();

 private:
  struct Asked {
    CheckedHost* checked;
    std::string secret;
    std::unique_ptr<RemoteHost> connection;  // null when the host has answered or failed
  };

  void Ask(CheckedHost& checked);
  void Wait();
  void TakeProbe(const ProbeListener::Peer& peer);
  void TakeAnswers(Asked& asked);
  void Fail(Asked& asked, ExitCode code, const std::string& problem);
  std::string ToTry(const std::string& host) const;

  const HostQuestion& question_;
  ProbeListener listener_;
  std::list<Asked> asked_;
};

void HostCheck::Ask(CheckedHost& checked) {
  const std::string& name = checked.host.name;
  asked_.push_back({&checked, NewToken(), std::make_unique<RemoteHost>(question_.ssh, name)});
  nlohmann::json check{{"endpoint", listener_.endpoint()}, {"secret", asked_.back().secret}};
  if (question_.config != nullptr) check["config"] = ConfigText(*question_.config);
  asked_.back().connection->Send({{"check", std::move(check)}});
}

void HostCheck::Wait() {
  std::vector<pollfd> events;
  for (const int fd : listener_.fds()) events.push_back({.fd = fd, .events = POLLIN});
  for (const Asked& asked : asked_) {
    if (asked.connection == nullptr) continue;
    for (const int fd : asked.connection->fds()) events.push_back({.fd = fd, .events = POLLIN});
  }
  ::poll(events.data(), events.size(), 100);
  while (true) {
    const ProbeListener::Peer peer = listener_.Take();
    if (!peer.fd.valid()) return;
    TakeProbe(peer);
  }
}

void HostCheck::TakeProbe(const ProbeListener::Peer& peer) {
  const auto asked = std::ranges::find(asked_, peer.secret, &Asked::secret);
  if (asked == asked_.end()) return;  // a stranger
  try {
    asked->checked->link = MeasureLink(peer.fd, /*bandwidth=*/false);
  } catch (const Error& error) {
    Fail(*asked, ExitCode::kFailure,
         fmt::format("the connection to this host failed: {}", error.what()));
  }
}

void HostCheck::Fail(Asked& asked, ExitCode code, const std::string& problem) {
  asked.connection.reset();
  if (!asked.checked->problem.empty()) return;
  asked.checked->code = code;
  asked.checked->problem = fmt::format("host {}: {}", asked.checked->host.name, problem);
}

std::string HostCheck::ToTry(const std::string& host) const {
  std::string command;
  for (const std::string& word : question_.ssh.words) command += ShellWord(word) + " ";
  return fmt::format("{}{} {} --version", command, host, ShellWord(question_.ssh.muster));
}

void HostCheck::TakeAnswers(Asked& asked) {
  if (asked.connection == nullptr) return;
  HostFacts& facts = asked.checked->facts;
  bool done = false;
  asked.connection->Read(
      [&](const nlohmann::json& message) {
        if (!message.contains("facts")) return;
        facts = HostFactsFrom(message["facts"]);
        done = true;
      },
      [](const std::string&) {});
  const std::string version = asked.connection->version();
  if (!version.empty() && version != kVersion) {
    facts.version = version;
    return Fail(asked, ExitCode::kRefused,
                fmt::format("expected Muster {} as here, got {} ({}); install the same version on "
                            "all hosts",
                            kVersion, version, question_.ssh.muster));
  }
  if (!done && asked.connection->ended()) {
    const std::string trouble = asked.connection->Trouble();
    return Fail(asked, ExitCode::kFailure,
                fmt::format("{}; expected a login without a question, and Muster {} in the same "
                            "place as here: try {}",
                            trouble, kVersion, ToTry(asked.checked->host.name)));
  }
  if (!done) return;
  asked.connection.reset();
  if (!facts.unconnected.empty()) {
    return Fail(asked, ExitCode::kFailure,
                fmt::format("it does not reach this host: {}; allow connections to this host; a "
                            "launch can choose the interface (--set cluster.interface=NAME)",
                            facts.unconnected));
  }
  if (!facts.data.problem.empty()) Fail(asked, facts.data.code, facts.data.problem);
}

std::vector<CheckedHost> HostCheck::Run() {
  std::vector<CheckedHost> checked;
  for (const Host& host : question_.hosts) checked.push_back({.host = host});
  for (CheckedHost& one : checked) {
    if (!one.host.here) Ask(one);
  }
  // On a thread, because counting the data may take minutes, and the other hosts wait for answers.
  const bool works_here = std::ranges::any_of(question_.hosts, &Host::here);
  std::future<HostFacts> here = std::async(works_here ? std::launch::async : std::launch::deferred,
                                           [this] { return ReadHostFacts(question_.config); });
  const auto end = Clock::now() + std::chrono::duration<double>(question_.patience_s);
  const auto waits = [](const Asked& asked) { return asked.connection != nullptr; };
  auto say_at = Clock::now() + kQuiet;
  while (std::ranges::any_of(asked_, waits) && Clock::now() < end) {
    Wait();
    for (Asked& asked : asked_) TakeAnswers(asked);
    if (Clock::now() < say_at) continue;
    say_at = Clock::time_point::max();
    std::vector<std::string> names;
    for (const Asked& asked : asked_) {
      if (waits(asked)) names.push_back(asked.checked->host.name);
    }
    if (names.empty()) continue;
    PrintResult(fmt::format("Waiting up to {} for the {} {}", FormatDuration(question_.patience_s),
                            names.size() == 1 ? "host" : "hosts", Join(names, ", ")));
  }
  for (Asked& asked : asked_) {
    if (asked.connection == nullptr) continue;
    const std::string within = FormatDuration(question_.patience_s);
    const bool counts = question_.config != nullptr && !asked.connection->version().empty();
    Fail(asked, ExitCode::kDeadline,
         counts
             ? fmt::format("expected the number of its samples within {}, got nothing; give it "
                           "more time with --set deadlines.start_s=N",
                           within)
             : fmt::format("no answer within {}; try {}", within, ToTry(asked.checked->host.name)));
  }
  for (CheckedHost& one : checked) {
    if (!one.host.here) continue;
    one.facts = here.get();
    one.facts.address = question_.address.address;
    one.facts.interface = question_.address.interface;
    one.facts.mtu = MtuOf(one.facts.interface);
  }
  return checked;
}

std::string SamplesText(const DataCount& data) {
  const std::string validation =
      data.validation > 0 ? fmt::format(", {} validation", FormatCount(data.validation)) : "";
  return fmt::format("{} training{} and {} test samples", FormatCount(data.train), validation,
                     FormatCount(data.test));
}

}  // namespace

// Two names of one machine would have their workers share its cores and memory.
void CompareMachines(std::vector<CheckedHost>& hosts) {
  for (auto one = hosts.begin(); one != hosts.end(); ++one) {
    if (!one->problem.empty() || one->facts.boot.empty()) continue;
    const auto same = std::find_if(hosts.begin(), one, [&](const CheckedHost& other) {
      return other.facts.boot == one->facts.boot && other.facts.hostname == one->facts.hostname;
    });
    if (same == one) continue;
    one->code = ExitCode::kUsage;
    one->problem = fmt::format(
        "host {}: expected another machine than that of host {}, got the same one ({}); name each "
        "machine once, with all its slots",
        one->host.name, same->host.name, one->facts.hostname);
  }
}

// The server would refuse other data as well, but only after everything has started.
void CompareData(std::vector<CheckedHost>& hosts) {
  const CheckedHost* first = nullptr;
  for (CheckedHost& one : hosts) {
    if (!one.problem.empty()) continue;
    if (first == nullptr) first = &one;
    const DataCount &a = first->facts.data, &b = one.facts.data;
    if (a.train == b.train && a.test == b.test && a.validation == b.validation) continue;
    one.code = ExitCode::kRefused;
    one.problem =
        fmt::format("host {}: expected the {} of host {}, got {}; copy the same data to all hosts",
                    one.host.name, SamplesText(a), first->host.name, SamplesText(b));
  }
}

std::vector<CheckedHost> CheckHosts(const HostQuestion& question) {
  std::vector<CheckedHost> hosts = HostCheck(question).Run();
  CompareMachines(hosts);
  if (question.config != nullptr) CompareData(hosts);
  return hosts;
}

std::string OffsetText(double seconds) {
  const double size = std::abs(seconds);
  const char sign = seconds <= -0.00005 ? '-' : '+';  // not -0.0 ms
  if (size < 1) return fmt::format("{}{:.1f} ms", sign, 1000 * size);
  return fmt::format("{}{:.1f} s", sign, size);
}

std::vector<std::string> HostTable(const std::vector<CheckedHost>& hosts, TableFor use) {
  using Cell = std::function<std::string(const CheckedHost&)>;
  struct Column {
    TextTable::Column head;
    std::optional<TableFor> only;
    Cell cell;
  };
  const auto number = [](double value) {
    return value > 0 ? std::to_string(static_cast<int>(value)) : "";
  };
  const auto bytes = [](double value) { return value > 0 ? FormatBytes(value) : ""; };
  const std::vector<Column> columns{
      {{"host"}, {}, [](const CheckedHost& one) { return one.host.name; }},
      {{"workers", true},
       TableFor::kJob,
       [&](const CheckedHost& one) { return number(one.host.slots); }},
      {{"version"}, {}, [](const CheckedHost& one) { return one.facts.version; }},
      {{"cores", true}, {}, [&](const CheckedHost& one) { return number(one.facts.cores); }},
      {{"memory", true},
       TableFor::kDoctor,
       [&](const CheckedHost& one) { return bytes(one.facts.memory_available); }},
      {{"disk", true},
       TableFor::kDoctor,
       [&](const CheckedHost& one) { return bytes(one.facts.disk_free); }},
      {{"updates with"}, {}, [](const CheckedHost& one) { return one.facts.instructions; }},
      {{"samples"},
       TableFor::kJob,
       [](const CheckedHost& one) {
         const DataCount& data = one.facts.data;
         return data.train < 0
                    ? ""
                    : fmt::format("{} + {}", FormatCount(data.train), FormatCount(data.test));
       }},
      {{"interface"},
       TableFor::kDoctor,
       [](const CheckedHost& one) { return one.facts.interface; }},
      {{"MTU", true},
       TableFor::kDoctor,
       [&](const CheckedHost& one) { return number(one.facts.mtu); }},
      {{"clock", true},
       {},
       [](const CheckedHost& one) {
         return one.link.latency_s > 0 ? OffsetText(one.link.clock_offset_s) : "";
       }},
      {{"latency", true},
       TableFor::kJob,
       [](const CheckedHost& one) {
         return one.link.latency_s > 0 ? FormatMilliseconds(1000 * one.link.latency_s) : "";
       }},
      {{"processor"}, {}, [](const CheckedHost& one) { return one.facts.processor; }}};
  const auto shown = [&](const Column& column) { return !column.only || *column.only == use; };
  std::vector<TextTable::Column> heads;
  for (const Column& column : columns) {
    if (shown(column)) heads.push_back(column.head);
  }
  TextTable table(heads);
  for (const CheckedHost& one : hosts) {
    std::vector<std::string> row;
    for (const Column& column : columns) {
      if (!shown(column)) continue;
      const std::string text = column.cell(one);
      row.push_back(text.empty() ? "-" : text);
    }
    table.AddRow(row);
  }
  return table.Lines();
}

std::string ProcessorsNote(const std::vector<CheckedHost>& hosts) {
  const CheckedHost* first = nullptr;
  for (const CheckedHost& one : hosts) {
    if (one.facts.cores == 0) continue;
    if (first == nullptr) first = &one;
    if (one.facts.processor == first->facts.processor) continue;
    return fmt::format(
        "Note: the processors of hosts {} and {} differ. The last bits of a result depend on which "
        "processor computes which slice.",
        first->host.name, one.host.name);
  }
  return "";
}

void RequireGood(const std::vector<CheckedHost>& hosts) {
  ExitCode code = ExitCode::kOk;
  std::vector<std::string> problems;
  for (const CheckedHost& one : hosts) {
    if (one.problem.empty()) continue;
    if (problems.empty()) code = one.code;
    problems.push_back(one.problem);
  }
  if (!problems.empty()) throw Error(code, Join(problems, "\n  "));
}

}  // namespace muster
