// What the agent of a host does before a job starts there: it tells about its host, and measures
// the network to another one (see host_agent.h). Each function ends within some seconds, except
// that counting samples may take long.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace muster {

using SendAnswer = std::function<void(const nlohmann::json&)>;

void AnswerCheck(const nlohmann::json& question, const SendAnswer& send);
// Listens for another host's AnswerConnect, and measures.
void AnswerMeasure(const nlohmann::json& question, const SendAnswer& send);
void AnswerConnect(const nlohmann::json& question, const SendAnswer& send);

}  // namespace muster
