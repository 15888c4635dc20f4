// Workers behind relays are peers like others, and each chunk of weights is sent to a relay once.
#include "common/transport/relayed_server_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster {
namespace relayed_server_link_test {

using ::testing::ElementsAre;
using Kind = FromWorker::Kind;

constexpr PeerId kRelay = 4, kOtherRelay = 5, kDirect = 9;  // connections

// A link without a network.
class ScriptedLink : public ServerLink {
 public:
  struct Sent {
    PeerId peer;
    wire::ServerMessage message;
    size_t bytes;
    Urgency urgency;
  };

  std::string endpoint() const override { return "scripted://"; }
  int fd() const override { return 33; }
  bool Pending() override { return !inbox.empty(); }
  void Deliver() override { ++deliveries; }
  std::optional<FromWorker> Receive() override {
    if (inbox.empty()) return std::nullopt;
    FromWorker event = std::move(inbox.front());
    inbox.pop_front();
    return event;
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override {
    sent.push_back({peer, message, tensor.bytes.size(), tensor.urgency});
    return result;
  }

  void ShareGradients(PeerId peer, const GradientLayout& layout) override {
    shared.emplace_back(peer, layout.arenas());
  }
  bool SharesMemory(PeerId peer) const override { return peer == kRelay; }

  std::deque<FromWorker> inbox;
  std::vector<Sent> sent;
  std::vector<std::pair<PeerId, size_t>> shared;  // connection, buffers
  SendResult result = SendResult::kQueued;
  int deliveries = 0;
};

class RelayedServerLinkTest : public ::testing::Test {
 protected:
  static FromWorker Message(PeerId connection, std::optional<uint32_t> via) {
    FromWorker event{.kind = Kind::kMessage, .peer = connection, .message = {}, .payload = {}};
    event.message.mutable_hello();
    if (via) event.message.set_via(*via);
    return event;
  }
  static FromWorker Lost(PeerId connection) {
    return {.kind = Kind::kLost, .peer = connection, .message = {}, .payload = {}};
  }
  FromWorker Hear(FromWorker event) {
    inner_.inbox.push_back(std::move(event));
    return link_->Receive().value();
  }
  // Returns the sender of a message.
  PeerId From(PeerId connection, std::optional<uint32_t> via) {
    const FromWorker event = Hear(Message(connection, via));
    EXPECT_EQ(event.kind, Kind::kMessage);
    EXPECT_TRUE(event.message.has_hello());
    return event.peer;
  }
  FromWorker End(PeerId connection, uint32_t via) {
    FromWorker event = Message(connection, via);
    event.message.mutable_ended();
    return Hear(std::move(event));
  }
  // Sends 12 bytes of weights. Returns how many of them reach the inner link.
  size_t SendWeights(PeerId peer, int64_t version, uint32_t chunk = 0, bool average = false) {
    wire::ServerMessage message;
    message.mutable_weights_chunk()->set_version(version);
    message.mutable_weights_chunk()->set_chunk(chunk);
    message.mutable_weights_chunk()->set_average(average);
    const Urgency urgency{version, average, chunk};
    EXPECT_EQ(link_->Send(peer, message, {std::as_bytes(std::span(weights_)), urgency}),
              inner_.result);
    const ScriptedLink::Sent& sent = inner_.sent.back();
    EXPECT_EQ(sent.message.weights_chunk().version(), version);
    EXPECT_EQ(sent.message.weights_chunk().chunk(), chunk);
    EXPECT_EQ(sent.urgency, urgency) << "it keeps its place without its values, too";
    return sent.bytes;
  }
  // What is sent to this peer without a tensor.
  ScriptedLink::Sent SendStop(PeerId peer) {
    wire::ServerMessage message;
    message.mutable_stop()->set_reason("done");
    EXPECT_EQ(link_->Send(peer, message, {}), inner_.result);
    EXPECT_EQ(inner_.sent.back().message.stop().reason(), "done");
    EXPECT_EQ(inner_.sent.back().bytes, 0u);
    return inner_.sent.back();
  }

  const std::array<float, 3> weights_{1, 2, 3};
  ScriptedLink& inner_ = *new ScriptedLink;
  const std::unique_ptr<ServerLink> link_ = WithRelays(std::unique_ptr<ServerLink>(&inner_));
};

TEST_F(RelayedServerLinkTest, DirectPeersPassThrough) {
  EXPECT_FALSE(link_->Receive());
  const PeerId peer = From(kDirect, std::nullopt);
  EXPECT_EQ(From(kDirect, std::nullopt), peer);
  EXPECT_NE(From(kRelay, std::nullopt), peer);
  const ScriptedLink::Sent sent = SendStop(peer);
  EXPECT_EQ(sent.peer, kDirect);
  EXPECT_FALSE(sent.message.has_via());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(SendWeights(peer, 1), sizeof weights_) << "always with the values";
    EXPECT_FALSE(inner_.sent.back().message.has_via());
  }
  inner_.result = SendResult::kGone;
  (void)SendStop(peer);
  const FromWorker lost = Hear(Lost(kDirect));
  EXPECT_EQ(lost.kind, Kind::kLost);
  EXPECT_EQ(lost.peer, peer);
  EXPECT_FALSE(link_->Receive());
}

// A relay on this host shares memory for all of its workers; a direct peer has its own buffers.
TEST_F(RelayedServerLinkTest, SharesMemoryWithTheRelay) {
  const GradientLayout layout({3}, 2, 1);
  const PeerId worker = From(kRelay, 7), other = From(kOtherRelay, 7), direct = From(kDirect, {});
  link_->ShareGradients(worker, layout);
  link_->ShareGradients(direct, layout);
  EXPECT_THAT(inner_.shared, ElementsAre(std::pair(kRelay, GradientLayout::kRelayPlaces),
                                         std::pair(kDirect, size_t{2})));
  EXPECT_TRUE(link_->SharesMemory(worker));
  EXPECT_FALSE(link_->SharesMemory(other));
  EXPECT_FALSE(link_->SharesMemory(direct));
}

TEST_F(RelayedServerLinkTest, KnowsWhoComesOverOneConnection) {
  const PeerId worker = From(kRelay, 7), beside = From(kRelay, 8), other = From(kOtherRelay, 7);
  const PeerId direct = From(kDirect, {}), relay = From(kRelay, {});
  EXPECT_EQ(link_->ConnectionOf(worker), link_->ConnectionOf(beside));
  EXPECT_EQ(link_->ConnectionOf(worker), link_->ConnectionOf(relay));
  EXPECT_NE(link_->ConnectionOf(worker), link_->ConnectionOf(other));
  EXPECT_NE(link_->ConnectionOf(worker), link_->ConnectionOf(direct));
}

TEST_F(RelayedServerLinkTest, ThePayloadAndTheMessageStayAsTheyWere) {
  const PeerId peer = From(kRelay, 7);
  FromWorker event = Message(kRelay, 7);
  event.message.mutable_gradient_part()->set_chunk(3);
  event.payload = {weights_.data(), sizeof weights_, nullptr};
  const FromWorker heard = Hear(event);
  EXPECT_EQ(heard.message.ShortDebugString(), event.message.ShortDebugString());
  EXPECT_EQ(heard.payload.data, weights_.data());
  EXPECT_EQ(heard.payload.bytes, sizeof weights_);
  EXPECT_EQ(heard.peer, peer);
}

// A tensor may arrive after the end of its sender, which overtook it.
TEST_F(RelayedServerLinkTest, OnlyHelloMakesAPeer) {
  FromWorker late = Message(kRelay, 7);
  late.message.mutable_gradient_part();
  EXPECT_EQ(Hear(late).kind, Kind::kMalformed);
  const PeerId peer = From(kRelay, 7);
  (void)End(kRelay, 7);
  const FromWorker heard = Hear(late);
  EXPECT_EQ(heard.kind, Kind::kMalformed);
  EXPECT_NE(heard.peer, peer);
  EXPECT_EQ(link_->Send(peer, {}, {}), SendResult::kGone);
}

TEST_F(RelayedServerLinkTest, EachWorkerBehindARelayIsAPeer) {
  std::vector<PeerId> peers;
  for (const PeerId connection : {kRelay, kOtherRelay}) {
    for (const uint32_t via : {0, 1, 7}) peers.push_back(From(connection, via));
    peers.push_back(From(connection, std::nullopt));
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    EXPECT_EQ(std::ranges::count(peers, peers[i]), 1) << i;
  }
  EXPECT_EQ(From(kOtherRelay, 1), peers[5]);
  EXPECT_EQ(From(kRelay, 7), peers[2]);
  EXPECT_EQ(From(kRelay, 0), peers[0]);
  const ScriptedLink::Sent sent = SendStop(peers[6]);
  EXPECT_EQ(sent.peer, kOtherRelay);
  EXPECT_EQ(sent.message.via(), 7u);
  EXPECT_TRUE(SendStop(peers[0]).message.has_via()) << "even if it is 0";
}

TEST_F(RelayedServerLinkTest, AChunkIsSentToARelayOnce) {
  const PeerId first = From(kRelay, 1), second = From(kRelay, 2), other = From(kOtherRelay, 1);
  EXPECT_EQ(SendWeights(second, 4), sizeof weights_);
  EXPECT_EQ(inner_.sent.back().message.via(), 2u);
  EXPECT_EQ(SendWeights(first, 4), 0u);
  EXPECT_EQ(inner_.sent.back().message.via(), 1u);
  EXPECT_EQ(inner_.sent.back().peer, kRelay);
  EXPECT_EQ(SendWeights(other, 4), sizeof weights_) << "another relay";
  EXPECT_EQ(SendWeights(first, 4, 1), sizeof weights_) << "another chunk";
  EXPECT_EQ(SendWeights(first, 4, 0, true), sizeof weights_) << "the average";
  EXPECT_EQ(SendWeights(second, 4, 0, true), 0u);
  EXPECT_EQ(SendWeights(first, 5), sizeof weights_) << "the next version";
  EXPECT_EQ(SendWeights(second, 4), 0u) << "the relay still has it";
  EXPECT_EQ(SendWeights(second, 5), 0u);
  EXPECT_EQ(SendWeights(second, 6), sizeof weights_) << "overwrites version 4";
  EXPECT_EQ(SendWeights(first, 6), 0u);
  EXPECT_EQ(SendWeights(first, 5), 0u);
  EXPECT_EQ(SendWeights(first, 6, 0, true), sizeof weights_);
  EXPECT_EQ(SendWeights(From(kRelay, 3), 6), 0u) << "of a worker that has just come";
}

TEST_F(RelayedServerLinkTest, AChunkThatWasNotSentIsSentAgain) {
  const PeerId first = From(kRelay, 1), second = From(kRelay, 2);
  for (const SendResult failed : {SendResult::kFull, SendResult::kGone}) {
    inner_.result = failed;
    EXPECT_EQ(SendWeights(first, 0), sizeof weights_);
  }
  inner_.result = SendResult::kQueued;
  EXPECT_EQ(SendWeights(second, 0), sizeof weights_);
  EXPECT_EQ(SendWeights(first, 0), 0u);
  inner_.result = SendResult::kFull;
  EXPECT_EQ(SendWeights(first, 0), 0u) << "the relay has the values";
}

TEST_F(RelayedServerLinkTest, AWorkerWhoseConnectionHasEndedIsLost) {
  const PeerId first = From(kRelay, 1), second = From(kRelay, 2);
  const FromWorker lost = End(kRelay, 1);
  EXPECT_EQ(lost.kind, Kind::kLost);
  EXPECT_EQ(lost.peer, first);
  EXPECT_FALSE(link_->Receive());
  const size_t before = inner_.sent.size();
  EXPECT_EQ(link_->Send(first, {}, {}), SendResult::kGone);
  EXPECT_EQ(inner_.sent.size(), before);
  EXPECT_EQ(SendStop(second).message.via(), 2u);
  EXPECT_NE(From(kRelay, 1), first) << "numbers of peers are never reused";
  EXPECT_EQ(From(kRelay, 2), second);
}

TEST_F(RelayedServerLinkTest, WithARelayAllItsWorkersAreLost) {
  const PeerId first = From(kRelay, 1), second = From(kRelay, 2), other = From(kOtherRelay, 1);
  const PeerId relay = From(kRelay, std::nullopt);
  (void)End(kRelay, 2);
  const PeerId third = From(kRelay, 3);
  EXPECT_EQ(SendWeights(first, 1), sizeof weights_);
  std::vector<PeerId> lost{Hear(Lost(kRelay)).peer};
  EXPECT_TRUE(link_->Pending()) << "although the inner link has nothing";
  EXPECT_FALSE(link_->PrepareToSleep());
  while (const auto event = link_->Receive()) {
    EXPECT_EQ(event->kind, Kind::kLost);
    lost.push_back(event->peer);
  }
  EXPECT_THAT(lost, ElementsAre(relay, first, third));
  EXPECT_FALSE(link_->Pending());
  EXPECT_TRUE(link_->PrepareToSleep());
  for (const PeerId peer : {first, second, third}) {
    EXPECT_EQ(link_->Send(peer, {}, {}), SendResult::kGone);
  }
  EXPECT_EQ(SendWeights(other, 1), sizeof weights_);
}

// A connection's number is never reused, but a test can.
TEST_F(RelayedServerLinkTest, WhatALostRelayHadIsForgotten) {
  EXPECT_EQ(SendWeights(From(kRelay, 1), 1), sizeof weights_);
  (void)Hear(Lost(kRelay));
  (void)link_->Receive();
  EXPECT_EQ(SendWeights(From(kRelay, 1), 1), sizeof weights_);
}

TEST_F(RelayedServerLinkTest, ARelayHasALimitedNumberOfWorkers) {
  const PeerId first = From(kRelay, 0);
  for (uint32_t via = 1; via < 4096; ++via) (void)From(kRelay, via);
  const FromWorker event = Hear(Message(kRelay, 4096));
  EXPECT_EQ(event.kind, Kind::kMalformed);
  EXPECT_EQ(event.peer, From(kRelay, std::nullopt));
  EXPECT_EQ(From(kRelay, 0), first);
  EXPECT_NE(From(kOtherRelay, 4096), first) << "another relay may have as many";
  (void)End(kRelay, 9);
  EXPECT_EQ(Hear(Message(kRelay, 4096)).kind, Kind::kMessage);
}

TEST_F(RelayedServerLinkTest, OtherEventsPassThrough) {
  const PeerId peer = From(kDirect, std::nullopt);
  const FromWorker malformed =
      Hear({.kind = Kind::kMalformed, .peer = kDirect, .message = {}, .payload = {}});
  EXPECT_EQ(malformed.kind, Kind::kMalformed);
  EXPECT_EQ(malformed.peer, peer);
  FromWorker refused{.kind = Kind::kRefused, .message = {}, .payload = {}};
  refused.refused = "192.0.2.1:5";
  refused.why_refused = "no token";
  refused = Hear(refused);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.refused, "192.0.2.1:5");
  EXPECT_EQ(refused.why_refused, "no token");
  EXPECT_EQ(link_->endpoint(), "scripted://");
  EXPECT_EQ(link_->fd(), 33);
  link_->Deliver();
  EXPECT_EQ(inner_.deliveries, 1);
  EXPECT_FALSE(link_->Pending());
  inner_.inbox.push_back(Message(kDirect, std::nullopt));
  EXPECT_TRUE(link_->Pending());
  EXPECT_FALSE(link_->PrepareToSleep());
}

}  // namespace relayed_server_link_test
}  // namespace muster
