// A worker's handling of the server's messages, without a server, threads or a clock.
#include "worker/client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/link/wire_values.h"

namespace muster {
namespace session_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Kind = Order::Kind;
using Arrival = Session::Arrival;
using State = Session::State;

constexpr uint64_t kJob = 77;
constexpr size_t kFloats = 40;
constexpr TreeNode kLeft{1, 0}, kRight{1, 1};

class SessionTest : public ::testing::Test {
 protected:
  // Handles a message for rank 2 with this incarnation.
  void Hear(wire::ServerMessage message, uint32_t incarnation = 0, bool stored = true) {
    message.mutable_address()->set_job(kJob);
    message.mutable_address()->set_rank(2);
    message.mutable_address()->set_incarnation(incarnation);
    session_->Handle(
        {.kind = FromServer::Kind::kMessage, .message = std::move(message), .payload = {}}, stored,
        now_);
  }
  void Welcome(int64_t first_version = 0) {
    wire::ServerMessage message;
    wire::Welcome& welcome = *message.mutable_welcome();
    welcome.add_chunk_end(16);
    welcome.add_chunk_end(kFloats);
    welcome.set_train_samples(100);
    welcome.set_global_batch(16);
    welcome.set_total_steps(9);
    welcome.set_slices(4);
    welcome.set_buffers(5);
    *welcome.add_subtree() = SubtreeOf(kLeft);
    Hear(message);
    Activate(first_version);
  }
  void Activate(int64_t version, uint32_t incarnation = 0) {
    wire::ServerMessage message;
    message.mutable_activate()->set_version(version);
    Hear(message, incarnation);
  }
  void Weights(int64_t version, uint32_t chunk, uint32_t incarnation = 0) {
    wire::ServerMessage message;
    message.mutable_weights_chunk()->set_version(version);
    message.mutable_weights_chunk()->set_chunk(chunk);
    const bool is_next = session_->IsNextWeights(message.weights_chunk());
    Hear(message, incarnation, is_next);
  }
  static wire::ServerMessage Train(int64_t step, uint64_t order, const TreeNode& node) {
    wire::ServerMessage message;
    wire::Train& train = *message.mutable_train();
    train.set_order(order);
    train.set_step(step);
    train.set_samples(16);
    *train.add_subtree() = SubtreeOf(node);
    return message;
  }
  static wire::ServerMessage TakeOver(int64_t step, uint64_t order) {
    wire::ServerMessage message = Train(step, order, kRight);
    message.mutable_train()->set_urgent(true);
    message.mutable_train()->set_buffer(3);
    message.mutable_train()->add_chunk(1);
    return message;
  }
  void Reset(uint32_t from) {
    wire::ServerMessage message;
    message.mutable_reset()->set_incarnation(from + 1);
    Hear(message, from);
  }
  void Stop(bool completed) {
    wire::ServerMessage message;
    message.mutable_stop()->set_completed(completed);
    message.mutable_stop()->set_reason("enough");
    Hear(message);
  }
  // Exit code and error if the session has failed.
  std::optional<std::pair<ExitCode, std::string>> Ended() const {
    try {
      if (session_->error()) std::rethrow_exception(session_->error());
      return std::nullopt;
    } catch (const Error& error) {
      return std::pair(error.code(), std::string(error.what()));
    }
  }
  Arrival Look(int64_t version, size_t chunk, Session::Wait wait = Session::Wait::kForChunk) const {
    return session_->Look(version, chunk, Session::Of::kWeights, wait);
  }
  bool HasUrgentOrder() const {
    return session_->NextOrder() != nullptr && session_->NextOrder()->urgent();
  }
  static ExitCode CodeOf(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& thrown) {
      return thrown.code();
    }
  }
  ExitCode Code() const { return Ended().value_or(std::pair(ExitCode::kOk, "")).first; }

  Session::Time now_ = Session::Time() + seconds(1000);
  static SessionOptions Options() {
    return {.endpoint = "tcp://somewhere:1",
            .job = kJob,
            .arena_floats = kFloats,
            .start_s = 60,
            .silence_s = 20};
  }
  std::optional<Session> session_{std::in_place, Options(), now_};
};

TEST_F(SessionTest, WelcomeSaysWhoItIsAndWhatItBeginsWith) {
  EXPECT_EQ(session_->state(), State::kJoining);
  Welcome();
  EXPECT_EQ(session_->state(), State::kWelcomed);
  EXPECT_EQ(session_->address().rank(), 2u);
  EXPECT_EQ(session_->terms().nodes, std::vector<TreeNode>{kLeft});
  EXPECT_FALSE(Ended());
  Welcome();
  EXPECT_EQ(Code(), ExitCode::kPeerFailed) << "a second one";
}

TEST_F(SessionTest, JoiningWaitsAsLongAsTheServerBeats) {
  EXPECT_EQ(session_->JoinBy(), now_ + seconds(65));
  wire::ServerMessage beat;
  beat.mutable_heartbeat();
  for (int second = 0; second < 300; ++second) {
    now_ += seconds(1);
    Hear(beat);
    session_->CheckJoin(now_);
    ASSERT_FALSE(Ended()) << second;
  }
  now_ += seconds(19);
  session_->CheckJoin(now_);
  EXPECT_FALSE(Ended());
  now_ += seconds(2);
  session_->CheckJoin(now_);
  EXPECT_EQ(Code(), ExitCode::kDeadline);
}

TEST_F(SessionTest, JoiningIsPatientForTheStartWhateverTheSilence) {
  wire::ServerMessage beat;
  beat.mutable_heartbeat();
  now_ += seconds(1);
  Hear(beat);
  now_ += seconds(60);
  session_->CheckJoin(now_);
  EXPECT_FALSE(Ended()) << "start_s and 5 s have not passed";
  now_ += seconds(5);
  session_->CheckJoin(now_);
  EXPECT_EQ(Code(), ExitCode::kDeadline);
  EXPECT_THAT(Ended()->second, HasSubstr("tcp://somewhere:1"));
}

TEST_F(SessionTest, ARankThatIsTakenIsAskedForUntilItsWorkerMustHaveBeenNoticed) {
  wire::ServerMessage taken;
  taken.mutable_refused()->set_reason("rank 2 is taken");
  taken.mutable_refused()->set_rank_is_taken(true);
  for (int second = 0; second < 22; ++second) {
    Hear(taken);
    EXPECT_EQ(session_->state(), State::kRankTaken);
    session_->CheckJoin(now_);
    ASSERT_FALSE(Ended()) << second;
    EXPECT_THAT(session_->AskAgain(), HasSubstr("rank 2 is taken"));
    EXPECT_EQ(session_->state(), State::kJoining);
    now_ += seconds(1);
  }
  Hear(taken);
  session_->CheckJoin(now_);
  EXPECT_EQ(Code(), ExitCode::kRefused);
}

TEST_F(SessionTest, AnyOtherRefusalEndsIt) {
  wire::ServerMessage refused;
  refused.mutable_refused()->set_reason("the graph differs");
  Hear(refused);
  EXPECT_EQ(Code(), ExitCode::kRefused);
}

TEST_F(SessionTest, StopInsteadOfWelcome) {
  Stop(true);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Code(), ExitCode::kOk);
  EXPECT_THAT(Ended()->second, HasSubstr("enough"));
}

TEST_F(SessionTest, OrdersComeInTheirOrderAndUrgentOnesFirst) {
  Welcome();
  Hear(Train(0, 1, kLeft));
  Hear(Train(1, 2, kLeft));
  EXPECT_FALSE(HasUrgentOrder());
  Hear(TakeOver(0, 3));
  Hear(TakeOver(0, 4));
  EXPECT_TRUE(HasUrgentOrder());
  std::vector<uint64_t> numbers;
  while (session_->NextOrder() != nullptr)
    numbers.push_back(session_->TakeOrder().parts.at(0).order);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{3, 4, 1, 2}));
}

TEST_F(SessionTest, AnOrderSaysWhereEachGradientLies) {
  Welcome();
  wire::ServerMessage message = Train(3, 8, {0, 1});
  message.mutable_train()->set_buffer(2);
  *message.mutable_train()->add_subtree() = SubtreeOf(kRight);
  Hear(message);
  const Order order = session_->TakeOrder();
  EXPECT_EQ(order.version, 3);
  ASSERT_EQ(order.parts.size(), 2u);
  EXPECT_EQ(order.parts[1].order, 8u);
  EXPECT_EQ(order.parts[1].node, kRight);
  EXPECT_EQ(order.parts[1].buffer, 3u);
}

TEST_F(SessionTest, AnOrderThatCannotBeEndsIt) {
  const auto ends = [&](const auto& change) {
    session_.emplace(Options(), now_);
    Welcome();
    wire::ServerMessage message = Train(1, 8, kRight);
    change(*message.mutable_train());
    Hear(message);
    return Code() == ExitCode::kPeerFailed;
  };
  EXPECT_FALSE(ends([](wire::Train&) {}));
  EXPECT_TRUE(ends([](wire::Train& t) { t.set_step(10); }));
  EXPECT_TRUE(ends([](wire::Train& t) { t.set_samples(0); }));
  EXPECT_TRUE(ends([](wire::Train& t) { t.set_buffer(5); }));
  EXPECT_TRUE(ends([](wire::Train& t) { t.add_chunk(2); }));
  EXPECT_TRUE(ends([](wire::Train& t) { *t.add_subtree() = SubtreeOf(kLeft); }));
  const auto two = [](wire::Train& t, bool urgent) {
    *t.mutable_subtree(0) = SubtreeOf({0, 2});
    *t.add_subtree() = SubtreeOf({0, 3});
    t.set_urgent(urgent);
  };
  EXPECT_FALSE(ends([&](wire::Train& t) { two(t, false); }));
  EXPECT_TRUE(ends([&](wire::Train& t) { two(t, true); }));
}

// Computing it would overwrite a gradient of the next step.
TEST_F(SessionTest, AnUrgentOrderOfAStepThatIsOverIsDropped) {
  Welcome();
  for (const uint32_t chunk : {0, 1}) Weights(0, chunk);
  Hear(TakeOver(0, 3));
  Hear(TakeOver(1, 4));
  Weights(1, 0);
  EXPECT_TRUE(HasUrgentOrder());
  Weights(1, 1);
  EXPECT_EQ(session_->TakeOrder().parts.at(0).order, 4u) << "that of step 0 is over";
  Hear(TakeOver(0, 5));
  EXPECT_EQ(session_->NextOrder(), nullptr) << "it arrives too late";
}

TEST_F(SessionTest, WeightsAreHereChunkByChunk) {
  Welcome(4);
  EXPECT_EQ(Look(4, 0), Arrival::kComing);
  EXPECT_EQ(Look(3, 0), Arrival::kNever);
  Weights(4, 0);
  EXPECT_EQ(Look(4, 0), Arrival::kHere);
  EXPECT_EQ(Look(4, 1), Arrival::kComing);
  Weights(6, 0);  // earlier ones were not needed
  EXPECT_EQ(Look(6, 0), Arrival::kHere);
  Weights(5, 0);
  EXPECT_EQ(Code(), ExitCode::kPeerFailed) << "older ones";
  EXPECT_EQ(Look(6, 0), Arrival::kHere);
  EXPECT_EQ(Look(6, 1), Arrival::kNever);
  EXPECT_EQ(session_->WhyNever(6), session_->error());
}

TEST_F(SessionTest, AnUrgentOrderEndsAWaitForItAlone) {
  Welcome();
  Weights(0, 0);
  Hear(Train(0, 1, kLeft));
  EXPECT_EQ(Look(0, 1, Session::Wait::kForUrgent), Arrival::kComing);
  Hear(TakeOver(0, 3));
  EXPECT_EQ(Look(0, 1, Session::Wait::kForUrgent), Arrival::kInstead);
  EXPECT_EQ(Look(0, 1), Arrival::kComing);
  EXPECT_EQ(Look(0, 0, Session::Wait::kForUrgent), Arrival::kHere);
}

TEST_F(SessionTest, ResetDropsOrdersAndWeights) {
  Welcome();
  Weights(0, 0);
  Hear(Train(0, 1, kLeft));
  Reset(0);
  EXPECT_TRUE(session_->reset_pending());
  EXPECT_EQ(session_->address().incarnation(), 1u);
  EXPECT_EQ(Look(0, 0), Arrival::kInstead);
  Hear(Train(0, 2, kLeft), /*incarnation=*/0);  // was on its way
  Weights(0, 1, /*incarnation=*/0);
  EXPECT_TRUE(HasUrgentOrder());
  EXPECT_EQ(session_->TakeOrder().kind, Kind::kReset);
  EXPECT_FALSE(session_->reset_pending());
  EXPECT_EQ(session_->NextOrder(), nullptr);
  EXPECT_FALSE(Ended());
  Activate(2, 1);
  Weights(2, 0, 1);
  EXPECT_EQ(Look(2, 0), Arrival::kHere);
  Hear(Train(2, 9, kLeft), 3);
  EXPECT_EQ(Code(), ExitCode::kPeerFailed) << "an unknown incarnation";
}

TEST_F(SessionTest, LeaveIsSaidOnceInEachIncarnation) {
  EXPECT_FALSE(session_->LeaveIsDue());
  Welcome();
  EXPECT_TRUE(session_->LeaveIsDue());
  EXPECT_FALSE(session_->LeaveIsDue());
  Reset(0);
  EXPECT_TRUE(session_->LeaveIsDue());
}

TEST_F(SessionTest, StopIsTheLastOrder) {
  Welcome();
  Hear(Train(0, 1, kLeft));
  Stop(false);
  Reset(0);
  Hear(Train(1, 2, kLeft));
  EXPECT_EQ(Look(0, 0), Arrival::kNever);
  EXPECT_EQ(CodeOf(session_->WhyNever(0)), ExitCode::kPeerFailed);
  EXPECT_EQ(session_->TakeOrder().kind, Kind::kTrain);
  const Order stop = session_->TakeOrder();
  EXPECT_EQ(stop.kind, Kind::kStop);
  EXPECT_FALSE(stop.completed);
  EXPECT_EQ(stop.reason, "enough");
  EXPECT_EQ(session_->NextOrder(), nullptr);
  session_->Handle({.kind = FromServer::Kind::kLost, .message = {}, .payload = {}}, false, now_);
  EXPECT_FALSE(Ended()) << "the server may disconnect";
}

// A worker without slices may wait for weights that are no longer needed.
TEST_F(SessionTest, StopOfACompleteRunIsNoFailure) {
  Welcome();
  Stop(true);
  EXPECT_EQ(Look(0, 0), Arrival::kNever);
  EXPECT_EQ(CodeOf(session_->WhyNever(0)), ExitCode::kOk);
}

TEST_F(SessionTest, AnswersComeAfterACompleteRun) {
  const auto answer = [&] {
    wire::ServerMessage message;
    message.mutable_answer()->set_value("x");
    Hear(message);
    return session_->TakeAnswer().value_or(wire::Answer()).value();
  };
  Welcome();
  EXPECT_EQ(answer(), "x");
  EXPECT_FALSE(session_->TakeAnswer());
  Stop(true);
  EXPECT_EQ(answer(), "x");
  EXPECT_EQ(session_->WhyNoAnswer(), nullptr);
  session_->Handle({.kind = FromServer::Kind::kLost, .message = {}, .payload = {}}, false, now_);
  EXPECT_EQ(CodeOf(session_->WhyNoAnswer()), ExitCode::kPeerFailed);
}

TEST_F(SessionTest, NoAnswerComesAfterAFailure) {
  Welcome();
  Stop(false);
  EXPECT_EQ(CodeOf(session_->WhyNoAnswer()), ExitCode::kPeerFailed);
}

TEST_F(SessionTest, WeightsOfAVersionThatThereIsNotEndIt) {
  Welcome();
  Weights(11, 0);
  EXPECT_EQ(Code(), ExitCode::kPeerFailed);
}

TEST_F(SessionTest, TheEndOfTheConnectionEndsIt) {
  Welcome();
  session_->Handle({.kind = FromServer::Kind::kLost, .message = {}, .payload = {}}, false, now_);
  EXPECT_EQ(Code(), ExitCode::kPeerFailed);
}

TEST_F(SessionTest, SilenceEndsItButNotATimeInWhichItWasSuspended) {
  Welcome();
  now_ += seconds(100);
  session_->CheckSilence(now_, seconds(90));
  EXPECT_FALSE(Ended());
  now_ += milliseconds(10'100);
  session_->CheckSilence(now_, seconds(0));
  EXPECT_EQ(Code(), ExitCode::kDeadline);
}

}  // namespace session_test
}  // namespace muster
