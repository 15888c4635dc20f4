#include "cli/hosts/agent_answers.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/cluster/server_address.h"
#include "cli/hosts/host_facts.h"
#include "cli/hosts/link_probe.h"
#include "common/base/error.h"
#include "common/base/shared_memory.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {

using Json = nlohmann::json;

void AnswerCheck(const Json& question, const SendAnswer& send) {
  std::optional<config::Config> config;
  if (question.contains("config")) {
    config = ParseConfigText(question.at("config").get<std::string>(), "the job's config");
  }
  HostFacts facts = ReadHostFacts(config ? &*config : nullptr);
  try {
    facts.address = ServeProbe(question.at("endpoint").get<std::string>(),
                               question.at("secret").get<std::string>());
    facts.interface = InterfaceWith(facts.address);
    if (CanSeal()) facts.relay_port = FreePortOf(facts.address);
    facts.mtu = MtuOf(facts.interface);
  } catch (const Error& error) {
    facts.unconnected = error.what();
  }
  send({{"facts", JsonOf(facts)}});
}

void AnswerMeasure(const Json& question, const SendAnswer& send) {
  try {
    ProbeListener listener(question.at("address").get<std::string>());
    send({{"listening", listener.endpoint()}});
    const UniqueFd peer = listener.Await(question.at("secret").get<std::string>());
    if (!peer.valid()) return send({{"unmeasured", ""}});
    const LinkFacts link = MeasureLink(peer, /*bandwidth=*/true);
    send({{"measured", {link.latency_s, link.to_peer, link.from_peer}}});
  } catch (const Error& error) {
    send({{"unmeasured", error.what()}});
  }
}

void AnswerConnect(const Json& question, const SendAnswer& send) {
  std::string problem;
  try {
    (void)ServeProbe(question.at("endpoint").get<std::string>(),
                     question.at("secret").get<std::string>());
  } catch (const Error& error) {
    problem = error.what();
  }
  send({{"connected", problem}});
}

}  // namespace muster
