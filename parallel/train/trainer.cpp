#include "dtrain/parallel/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <random>

#include <spdlog/spdlog.h>

#include "dtrain/core/base/text.h"
#include "dtrain/core/base/version.h"
#include "dtrain/parallel/train/agree.h"
#include "dtrain/parallel/train/gather.h"
#include "dtrain/parallel/train/recipe.h"
#include "dtrain/parallel/train/resume.h"

namespace dtrain {

using nlohmann::ordered_json;

namespace {

// A run that skips this many updates in a row will not recover.
constexpr std::int64_t max_skipped_in_a_row = 100;

// Seconds that stand for "as long as it takes": while rank 0 works on files, its peers wait.
constexpr double no_timeout = 1e8;

std::vector<ParameterRange> parameter_ranges(const ArenaLayout& layout) {
  std::vector<ParameterRange> ranges;
  for (const Parameter* p : layout.parameters()) {
    ranges.push_back({p->offset, p->elements(), p->norm_or_bias ? 1 : 0});
  }
  return ranges;
}

GradientNorms norms_by_group(const SquaredNorms& squares, std::span<const ParameterRange> ranges,
                             double divisor) {
  GradientNorms norms;
  for (const ParameterRange& range : ranges) {
    (range.group == 0 ? norms.weights : norms.norm_and_bias) =
        std::sqrt(squares.groups[static_cast<std::size_t>(range.group)]) / divisor;
  }
  return norms;
}

// Sample ids of the whole step, in the order of their positions.
std::vector<std::int64_t> gather_ids(Communicator& comm, const std::vector<SampleId>& mine) {
  std::vector<SampleId> all;
  const auto* bytes = reinterpret_cast<const char*>(mine.data());
  for (const std::string& text :
       gather_texts(comm, std::string(bytes, mine.size() * sizeof(SampleId)))) {
    const std::size_t before = all.size();
    all.resize(before + text.size() / sizeof(SampleId));
    std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(all.data() + before));
  }
  std::ranges::sort(all, {}, &SampleId::position);
  std::vector<std::int64_t> ids;
  for (const SampleId& sample : all) ids.push_back(sample.id);
  return ids;
}

std::unique_ptr<SyncMeeting> make_meeting(const RunPlan& plan, Communicator* pass_comm) {
  if (!plan.synchronized) return nullptr;
  DTRAIN_CHECK(pass_comm != nullptr, "a synchronized plan without a group for its passes");
  return std::make_unique<SyncMeeting>(*pass_comm, plan.batches.virtual_ranks);
}

std::string new_run_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

std::unique_ptr<Loader> make_loader(const config::TrainConfig& values,
                                    std::shared_ptr<const Dataset> dataset, bool training) {
  if (!dataset) return nullptr;
  const SampleSpec spec = dataset->spec();
  const Sampler sampler(dataset->size(), training && values.data().shuffle(), values.seed());
  return std::make_unique<Loader>(std::move(dataset),
                                  Transforms(values.data().transforms(), spec, values.seed()),
                                  sampler, training,
                                  LoaderOptions{.workers = values.data().workers(),
                                                .prefetch = values.data().prefetch(),
                                                .skip_bad = values.data().on_bad_sample() == "skip",
                                                .timeout = values.data().timeout()},
                                  Allocator("loader"));
}

Trainer::Trainer(const Config& config, Communicator& comm, const RunPlan& plan,
                 const RunOptions& options, const std::string& cpu_isa, Communicator* pass_comm)
    : config_(config),
      values_(config.values),
      comm_(comm),
      plan_(plan),
      options_(options),
      cpu_isa_(cpu_isa),
      first_rank_(comm.rank() == 0),
      lanes_(plan.lanes, plan.cores, values_.parallel().threads_per_virtual_rank(),
             convolution_named(values_.convolution())),
      loss_(make_loss(loss_options(values_.loss()))),
      replica_(*plan.layout, values_.optimizer(), values_.train().ema_decay()),
      schedule_(values_.schedule(), values_.optimizer().lr(), plan.steps),
      ranges_(parameter_ranges(*plan.layout)),
      reducer_(comm, *plan.layout, plan.buckets, plan.batches.virtual_ranks, plan.lanes,
               reduction_named(values_.parallel().reduction())),
      loader_(make_loader(values_, plan.train_data, true)),
      validation_loader_(make_loader(values_, plan.validation_data, false)),
      pass_comm_(pass_comm),
      meeting_(make_meeting(plan, pass_comm)),
      gradient_step_(*plan.model, *loss_, plan.batches, *loader_, reducer_, lanes_,
                     RandomKey(values_.seed()),
                     static_cast<float>(gradient_seed(plan.nominal_targets)), meeting_.get(),
                     plan.train_data->spec().input),
      faults_(faults_from_environment(comm.rank())),
      token_metrics_(token_metrics(plan.train_data->spec(), values_.loss())),
      recipe_text_(to_yaml(config, config.kinds)),
      run_start_(Clock::now()) {
  start();
}

Trainer::~Trainer() = default;

void Trainer::start() {
  const std::string identity = plan_.train_data->identity();
  agree(comm_, {{"program version", std::string(version()), "start the same build on all ranks"},
                {"recipe", recipe_digest(config_), "give all ranks the same configuration"},
                {"instruction set", cpu_isa_, "set cpu_isa to one that all machines have"},
                {"lanes", std::to_string(plan_.lanes), "give all ranks the same cores"},
                {"training data", identity, "copy the same files to all machines"}});
  // The model first: a plan of other buckets follows from other parameters, whose names say more.
  agree_on_model(comm_, *plan_.layout);
  agree(comm_, {{"bucket plan", plan_.buckets.digest(), "give all ranks the same configuration"}});

  std::optional<checkpoint::RunState> resumed =
      resume(comm_, config_, config_.kinds, options_, cpu_isa_, identity, replica_);
  std::string run_id;
  if (resumed) {
    restore(*resumed);
    resumed_step_ = progress_.step;
    run_id = resumed->run_id();
    already_finished_ = finished() && summary_says_done();
  } else {
    if (first_rank_) {
      initialize(replica_.arena(), RandomKey(values_.seed()), &lanes_.pool());
      if (!values_.init().from().empty()) {
        replica_.load_weights(resolve_weights(values_.init().from()), values_.init().strict());
      }
    }
    replica_.broadcast(comm_);
  }
  const std::string digest = check_same_weights(comm_, replica_.arena());
  if (already_finished_) return;

  if (first_rank_) {
    // A run whose checkpoints are all damaged starts over as the same run, so that it replaces
    // them.
    if (run_id.empty()) run_id = newest_run_id(RunFolder{values_.output()}.checkpoints());
    if (run_id.empty()) run_id = new_run_id();
    writer_ = std::make_unique<CheckpointWriter>(
        RunFolder{values_.output()}.checkpoints(),
        CheckpointOptions{.keep_last = values_.checkpoint().keep_last(),
                          .keep_best = values_.checkpoint().keep_best(),
                          .warn_only = values_.checkpoint().on_save_error() == "warn",
                          .run_id = run_id,
                          .begin_step = progress_.step});
    write_file_atomically(RunFolder{values_.output()}.config(), recipe_text_);
    spdlog::info("{} | {} on {} of {} | {} | batch {} = {} x {} x {} | {}",
                 counted(plan_.layout->parameter_count(), "parameter"),
                 counted(plan_.batches.virtual_ranks, "virtual rank"),
                 counted(comm_.size(), "process"), counted(plan_.cores, "core"), cpu_isa_,
                 plan_.batches.global, plan_.batches.virtual_ranks, plan_.batches.accumulate,
                 plan_.batches.micro, counted(plan_.steps, "step"));
    spdlog::info("{} | initial weights {}", comm_.stats().transport, digest);
    for (const std::string& warning : plan_.warnings) spdlog::warn("{}", warning);
  }
  record_ = std::make_unique<RunRecord>(config_, token_metrics_, first_rank_,
                                        resumed ? progress_.step : -1);
  record_->event({{"event", resumed ? "resume" : "start"},
                  {"step", progress_.step},
                  {"world_size", comm_.size()},
                  {"virtual_ranks", plan_.batches.virtual_ranks},
                  {"steps", plan_.steps},
                  {"cpu_isa", cpu_isa_},
                  {"weights_digest", digest},
                  {"time", utc_now()}});
}

// A run that was killed behind its last step still owes its evaluation and summary.
bool Trainer::summary_says_done() const {
  std::string status;
  if (first_rank_) {
    try {
      const auto json = ordered_json::parse(read_file(RunFolder{values_.output()}.summary()));
      if (json.value("steps", std::int64_t{-1}) == progress_.step)
        status = json.value("status", "");
    } catch (const std::exception&) {
      // No summary, or half of one: the run is not done.
    }
  }
  return broadcast_text(comm_, status) == "done";
}

bool Trainer::finished() const {
  if (early_stop_) return true;
  if (plan_.epochs == 0) return progress_.step >= plan_.steps;
  return progress_.batch >= plan_.epochs * plan_.batches.batches_per_epoch();
}

RunResult Trainer::run() {
  if (already_finished_) {
    if (first_rank_) {
      spdlog::info("already at step {} of {}, nothing to do", progress_.step, plan_.steps);
    }
    RunResult result;
    result.end = RunEnd::nothing;
    return result;
  }
  const std::int64_t per_epoch = plan_.batches.batches_per_epoch();
  loader_->start(
      {.plan = plan_.batches,
       .epoch = progress_.batch / per_epoch,
       .batch_in_epoch = progress_.batch % per_epoch,
       .last_epoch = plan_.epochs > 0 ? plan_.epochs : -1,
       .first_virtual_rank = reducer_.range().first,
       .last_virtual_rank = reducer_.range().last,
       .lanes = static_cast<int>(std::min<std::int64_t>(plan_.lanes, reducer_.range().size()))});
  step_end_ = Clock::now();
  while (!finished() && decision_.signal == 0 && !decision_.out_of_time) {
    train_step();
    at_border();
  }
  loader_->stop();
  return finish();
}

void Trainer::train_step() {
  show(RankPhase::train);
  const std::int64_t per_epoch = plan_.batches.batches_per_epoch();
  const StepPosition position{.step = progress_.step + 1,
                              .batch = progress_.batch,
                              .epoch = progress_.batch / per_epoch,
                              .batch_in_epoch = progress_.batch % per_epoch};
  const bool want_ids = values_.log().sample_ids();
  const GradientReport report = gradient_step_.run(replica_.arena(), position, faults_, want_ids);
  // Once: a step that is skipped has its number again.
  std::erase_if(faults_, [&](const Fault& fault) { return fault.step == position.step; });

  Ballot ballot;
  if (options_.stop_signal != nullptr) ballot.signal = options_.stop_signal->load();
  ballot.out_of_time =
      values_.train().max_time() > 0 && seconds_since(run_start_) >= values_.train().max_time();
  ballot.nonfinite = !reducer_.finite() || std::ranges::any_of(report.metrics, [](const auto& m) {
    return !std::isfinite(m.loss);
  });
  ballot.consequence = report.error && report.consequence;
  decision_ = vote(comm_, ballot, report.error ? report.error : pending_error_);
  const MetricSums metrics = sum_metrics(comm_, plan_.batches.virtual_ranks, report.metrics);

  epoch_samples_ += static_cast<std::int64_t>(metrics.samples);
  // What is left to divide by: see Note [Counts, not means]. A step without any valid target has
  // zero gradients, which any divisor leaves zero; it is not applied.
  const double divisor =
      metrics.loss_weight > 0 ? metrics.loss_weight * gradient_seed(plan_.nominal_targets) : 1.0;
  const SquaredNorms squares = squared_norms(reducer_.gradients(), ranges_, 2, lanes_.pool());
  const double norm = std::sqrt(squares.all) / divisor;
  const bool applied = accept_numbers(metrics, norm, position.step);
  const double lr = schedule_.rate(progress_.step);
  if (applied) {
    replica_.update(reducer_.gradients(),
                    {.lr = static_cast<float>(lr),
                     .gradient_divisor = static_cast<float>(divisor),
                     .clip_coefficient = clip_coefficient(norm, values_.train().clip_norm()),
                     .step = progress_.step,
                     .apply = true},
                    lanes_.pool());
    update_running_statistics(replica_.arena(), reducer_.gradients());
    replica_.update_averages(progress_.step == 0, lanes_.pool());
    ++progress_.step;
    progress_.last_loss = metrics.mean_loss();
    progress_.epoch += metrics;
  }
  ++progress_.batch;
  progress_.samples_seen += static_cast<std::int64_t>(metrics.samples);
  if (!made_a_step_) {
    comm_.set_timeout(values_.parallel().timeout());
    if (pass_comm_ != nullptr) pass_comm_->set_timeout(values_.parallel().timeout());
  }
  made_a_step_ = true;
  // A step without samples says nothing about what the loss depends on.
  if (!judged_unused_ && metrics.samples > 0) check_unused(report.used);

  const TimePoint now = Clock::now();
  const double seconds = seconds_between(step_end_, now);
  step_end_ = now;
  progress_.train_seconds += seconds;
  StepRecord record{.step = applied ? progress_.step : position.step,
                    .steps = plan_.steps,
                    .epoch = position.epoch,
                    .metrics = metrics,
                    .lr = lr,
                    .grad_norm = norm,
                    .grad_norms = norms_by_group(squares, ranges_, divisor),
                    .samples_seen = progress_.samples_seen,
                    .step_seconds = seconds,
                    .data_wait_seconds = loader_->take_wait_seconds(),
                    .exposed_seconds = reducer_.exposed_seconds(),
                    .skipped = progress_.skipped,
                    .applied = applied};
  if (want_ids) record.ids = gather_ids(comm_, report.ids);
  record_->step(record);
  report_skipped_samples();
}

bool Trainer::accept_numbers(const MetricSums& metrics, double norm, std::int64_t step) {
  // Finite parts may still overflow in the sum; and a rank that is alone knows by the sum only.
  if (!decision_.nonfinite && std::isfinite(metrics.loss) && std::isfinite(norm)) {
    if (metrics.loss_weight > 0) {
      epoch_has_targets_ = true;
      progress_.skipped_in_a_row = 0;
      return true;
    }
    // Momentum and weight decay would move the weights all the same.
    ++progress_.skipped;
    if (first_rank_) {
      spdlog::warn("step {}: {}: update skipped", step,
                   metrics.samples > 0 ? "none of its samples has a target that counts"
                                       : "none of its samples could be read");
    }
    return false;
  }
  epoch_has_targets_ = true;
  if (comm_.size() == 1) decision_.nonfinite_rank = 0;
  const std::string what = fmt::format(
      "{} is not finite in step {}{} (loss {}, gradient norm {}{})",
      std::isfinite(metrics.loss) ? "the gradient" : "the loss", step,
      decision_.nonfinite_rank >= 0 ? fmt::format(" on rank {}", decision_.nonfinite_rank) : "",
      metrics.mean_loss(), norm,
      progress_.last_loss ? fmt::format(", last finite loss {}", *progress_.last_loss) : "");
  if (values_.train().on_nonfinite() == "stop") {
    if (decision_.nonfinite_rank >= 0 && decision_.nonfinite_rank != comm_.rank()) {
      throw CommError(
          fmt::format("stopped because rank {} failed: {}", decision_.nonfinite_rank, what),
          decision_.nonfinite_rank);
    }
    throw NonFiniteError(what +
                         ": no weight was changed; lower optimizer.lr, set train.clip_norm, or "
                         "look at the data; train.on_nonfinite: skip leaves such steps out");
  }
  ++progress_.skipped;
  if (++progress_.skipped_in_a_row >= max_skipped_in_a_row) {
    throw NonFiniteError(fmt::format("{}: {} updates skipped in a row; the run does not recover",
                                     what, progress_.skipped_in_a_row));
  }
  if (first_rank_) spdlog::warn("{}: update skipped", what);
  return false;
}

void Trainer::check_unused(const std::vector<bool>& used) {
  judged_unused_ = true;
  // A parameter is unused if the loss of no rank reached it; a rank without samples has no say.
  std::string marks;
  for (const bool u : used) marks += u ? '1' : '0';
  const std::vector<std::string> all = gather_texts(comm_, marks);
  std::string names;
  for (const Parameter* parameter : plan_.layout->parameters()) {
    const bool somewhere = std::ranges::any_of(
        all, [&](const std::string& text) { return text[parameter->index] == '1'; });
    if (!somewhere) names += (names.empty() ? "" : ", ") + parameter->name;
  }
  if (names.empty()) return;
  if (values_.parallel().unused_parameters() == "error") {
    throw ConfigError(fmt::format(
        "parameters that the loss does not depend on: {}; use them, take them out, or set "
        "parallel.unused_parameters: warn to train them with zero gradients",
        names));
  }
  if (first_rank_) {
    spdlog::warn("the loss does not depend on: {}; trained with zero gradients", names);
  }
}

void Trainer::report_skipped_samples() {
  for (const SkippedSample& sample : loader_->take_skipped()) {
    spdlog::warn("sample {} skipped: {}", sample.id, sample.reason);
    skipped_samples_.add("train", sample);
  }
  if (!validation_loader_) return;
  for (const SkippedSample& sample : validation_loader_->take_skipped()) {
    spdlog::warn("validation sample {} skipped: {}", sample.id, sample.reason);
    skipped_samples_.add("validation", sample);
  }
}

// A run that counts steps would go through such epochs for ever, one that counts epochs would end
// as if it had trained.
void Trainer::throw_empty_epoch(std::int64_t epoch) {
  if (epoch_samples_ > 0) {
    throw ConfigError(fmt::format(
        "data.train: epoch {} has no target that counts in {} samples, so nothing was learned: "
        "look at loss.ignore_index, loss.class_weights and the data's targets",
        epoch, epoch_samples_));
  }
  const ordered_json skipped = skipped_samples_.gather_to_json(comm_);
  const ordered_json& samples = skipped.at("samples");
  throw ConfigError(fmt::format(
      "data.train: epoch {} has no sample that can be read: {} skipped (data.on_bad_sample: "
      "skip){}",
      epoch, skipped.at("count").get<std::int64_t>(),
      samples.empty() ? ""
                      : ", the first because of " +
                            samples.front().at("reason").get_ref<const std::string&>()));
}

void Trainer::at_border() {
  const std::int64_t per_epoch = plan_.batches.batches_per_epoch();
  const bool epoch_ended = progress_.batch % per_epoch == 0;
  if (epoch_ended) {
    record_->epoch(progress_.batch / per_epoch - 1, progress_.step, progress_.epoch);
    progress_.epoch = {};
    if (!epoch_has_targets_) throw_empty_epoch(progress_.batch / per_epoch - 1);
    epoch_has_targets_ = false;
    epoch_samples_ = 0;
  }
  if (progress_.step == 0) return;  // every update so far was skipped: there is nothing new
  const std::int64_t check = values_.parallel().check_sync();
  if (check > 0 && progress_.step % check == 0) check_same_weights(comm_, replica_.arena());

  const std::int64_t every = values_.validation().every_steps();
  const bool due = every == 0 ? epoch_ended : progress_.step % every == 0;
  const bool best = due && validate();
  const std::int64_t save_every = values_.checkpoint().every_steps();
  const bool save_due = save_every > 0 && progress_.step % save_every == 0;
  // finish() saves the last step.
  if (progress_.step == plan_.steps) return;
  if (save_due || (best && values_.checkpoint().keep_best() > 0)) save();
}

// A loss that is not finite ranks nothing (and is null in JSON).
std::optional<double> Trainer::validation_loss() const {
  if (!validation_loader_ || progress_.validated_step != progress_.step) return std::nullopt;
  const ordered_json& loss = progress_.validation.at("loss");
  if (!loss.is_number() || !std::isfinite(loss.get<double>())) return std::nullopt;
  return loss.get<double>();
}

bool Trainer::validate() {
  if (!validation_loader_ || progress_.validated_step == progress_.step) return false;
  show(RankPhase::evaluate);
  const Evaluation evaluation =
      evaluate_samples(comm_, *plan_.model, *loss_, replica_.evaluated(), plan_.validation_batches,
                       *validation_loader_, lanes_, options_.stop_signal);
  if (evaluation.stop_signal != 0) {
    decision_.signal = evaluation.stop_signal;
    return false;
  }
  report_skipped_samples();
  const MetricSums& metrics = evaluation.metrics;
  record_->evaluation(progress_.step, metrics);
  progress_.validated_step = progress_.step;
  progress_.validation = to_json(metrics, token_metrics_);
  if (metrics.loss_weight == 0) {
    if (first_rank_) {
      spdlog::warn(
          "data.validation: no sample with a target that counts could be read: this "
          "evaluation has no loss, and says nothing about which weights are best");
    }
    return false;
  }
  const bool best = std::isfinite(metrics.mean_loss()) &&
                    (!progress_.best_loss || metrics.mean_loss() < *progress_.best_loss);
  if (best) {
    progress_.best_loss = metrics.mean_loss();
    progress_.best_step = progress_.step;
    progress_.best = ordered_json{{"step", progress_.step}};
    progress_.best.update(progress_.validation);
    progress_.evaluations_without_gain = 0;
  } else {
    ++progress_.evaluations_without_gain;
  }
  const std::int64_t patience = values_.train().early_stop_patience();
  if (patience > 0 && progress_.evaluations_without_gain >= patience) {
    early_stop_ = true;
    if (first_rank_) {
      record_->pause();
      spdlog::info("early stop: {} evaluations without a loss below {:.6f} (step {})",
                   progress_.evaluations_without_gain,
                   progress_.best_loss.value_or(std::numeric_limits<double>::infinity()),
                   progress_.best_step);
    }
  }
  return best;
}

void Trainer::save(bool last) {
  if (saved_step_ == progress_.step) return;
  saved_step_ = progress_.step;
  if (!first_rank_) return;
  show(RankPhase::save);
  try {
    CheckpointSnapshot snapshot = writer_->take_snapshot();
    replica_.copy_to(snapshot, last);
    snapshot.state = state();
    snapshot.validation_loss = validation_loss();
    writer_->save(std::move(snapshot));
  } catch (...) {
    // The others are not told here: Note [Commit vote].
    pending_error_ = std::current_exception();
  }
}

RunResult Trainer::finish() {
  if (decision_.signal == 0 && !decision_.out_of_time) validate();
  lanes_.release_cached();  // no pass follows
  save(true);
  // The last save is rank 0's work alone; however long it takes, the others wait.
  comm_.set_timeout(no_timeout);
  if (first_rank_ && !pending_error_) {
    try {
      writer_->wait();
    } catch (...) {
      pending_error_ = std::current_exception();
    }
  }
  vote(comm_, {}, pending_error_);

  RunResult result;
  result.signal = decision_.signal;
  if (decision_.signal != 0) {
    result.end = decision_.signal == SIGUSR1 ? RunEnd::out_of_time : RunEnd::stopped;
  } else if (decision_.out_of_time) {
    result.end = RunEnd::out_of_time;
  }
  // Under on_save_error: warn the last weights may be lost: a run that says "done" must have them.
  const bool lost = first_rank_ && progress_.step != resumed_step_ &&
                    writer_->last_saved_step() != progress_.step;
  result.summary = summary(result.end, lost);
  if (lost) {
    const RunFolder folder{values_.output()};
    throw CheckpointError((folder.checkpoints() / checkpoint_name(progress_.step)).string(),
                          fmt::format("the weights of the last step, {}, were not saved (see the "
                                      "warning above): mend that, and --resume to make the steps "
                                      "since the newest checkpoint again",
                                      progress_.step));
  }
  show(RankPhase::end);
  return result;
}

ordered_json Trainer::summary(RunEnd end, bool lost) {
  const std::vector<RankMemory> memory =
      gather(comm_, RankMemory{resident_peak_bytes(), lanes_.peak_bytes()});
  const ordered_json skipped_samples = skipped_samples_.gather_to_json(comm_);
  if (!first_rank_) return {};
  ordered_json resident = ordered_json::array(), allocator = ordered_json::array();
  for (const RankMemory& m : memory) {
    resident.push_back(m.resident_peak);
    allocator.push_back(m.allocator_peak);
  }
  const std::string transport =
      comm_.stats().transport.substr(0, comm_.stats().transport.find(':'));
  const double seconds = progress_.train_seconds;
  ordered_json json = {
      {"status", lost                  ? "failed"
                 : end == RunEnd::done ? "done"
                                       : "stopped"},
      {"steps", progress_.step},
      {"epochs", progress_.batch / plan_.batches.batches_per_epoch()},
      {"world_size", comm_.size()},
      {"samples_seen", progress_.samples_seen},
      {"samples_per_s", seconds > 0 ? static_cast<double>(progress_.samples_seen) / seconds : 0},
      {"train_seconds", seconds},
      {"weights_digest", replica_.arena().digest()},
      {"loss", progress_.last_loss ? ordered_json(*progress_.last_loss) : ordered_json()},
      {"skipped", progress_.skipped},
      {"skipped_samples", skipped_samples},
      {"early_stop", early_stop_},
      {"validation", progress_.validation},
      {"best", progress_.best},
      {"peak_memory_bytes", resident},
      {"allocator_peak_bytes", allocator},
      {"communication", {{transport, comm_.stats().bytes}}},
      {"cpu_isa", cpu_isa_}};
  ordered_json event = {{"event", "end"}, {"step", progress_.step}, {"time", utc_now()}};
  event.update(json);
  record_->pause();
  record_->event(event);
  write_file_atomically(RunFolder{values_.output()}.summary(), json.dump(2) + "\n");
  if (lost) return json;
  spdlog::info("{} at step {} | {:.2f} s of training | weights {}",
               end == RunEnd::done ? "done" : "stopped", progress_.step, seconds,
               json["weights_digest"].get<std::string>());
  return json;
}

void Trainer::restore(const checkpoint::RunState& state) {
  progress_.step = state.step();
  progress_.batch = state.batch();
  progress_.samples_seen = state.samples_seen();
  progress_.skipped = state.skipped();
  progress_.train_seconds = state.train_seconds();
  if (state.has_last_loss()) progress_.last_loss = state.last_loss();
  if (state.has_best()) {
    progress_.best_loss = state.best().loss();
    progress_.best_step = state.best().step();
    progress_.best = ordered_json::parse(state.best().metrics());
  }
  if (state.has_validation()) {
    progress_.validation = ordered_json::parse(state.validation());
    progress_.validated_step = state.validated_step();
  }
  progress_.evaluations_without_gain = state.evaluations_without_gain();
  const std::int64_t patience = values_.train().early_stop_patience();
  early_stop_ = patience > 0 && progress_.evaluations_without_gain >= patience;
  const checkpoint::Sums& sums = state.epoch_sums();
  progress_.epoch = {.loss = sums.loss(),
                     .loss_weight = sums.loss_weight(),
                     .samples = sums.samples(),
                     .correct = sums.correct(),
                     .correct5 = sums.correct5(),
                     .targets = sums.targets()};
  // Whether the part before the checkpoint had targets is not kept: the next epoch will show.
  epoch_has_targets_ = progress_.batch % plan_.batches.batches_per_epoch() != 0;
  saved_step_ = progress_.step;
}

checkpoint::RunState Trainer::state() const {
  checkpoint::RunState state;
  state.set_step(progress_.step);
  state.set_batch(progress_.batch);
  const std::int64_t per_epoch = plan_.batches.batches_per_epoch();
  state.set_epoch(progress_.batch / per_epoch);
  state.set_batch_in_epoch(progress_.batch % per_epoch);
  state.set_samples_seen(progress_.samples_seen);
  state.set_skipped(progress_.skipped);
  state.set_train_seconds(progress_.train_seconds);
  state.set_recipe_digest(recipe_digest(config_));
  state.set_recipe(recipe_text_);
  state.set_cpu_isa(cpu_isa_);
  state.set_dataset_identity(plan_.train_data->identity());
  state.set_program_version(std::string(version()));
  if (progress_.last_loss) state.set_last_loss(*progress_.last_loss);
  if (progress_.best_loss) {
    state.mutable_best()->set_step(progress_.best_step);
    state.mutable_best()->set_loss(*progress_.best_loss);
    state.mutable_best()->set_metrics(progress_.best.dump());
  }
  if (progress_.validated_step >= 0) {
    state.set_validation(progress_.validation.dump());
    state.set_validated_step(progress_.validated_step);
  }
  state.set_evaluations_without_gain(progress_.evaluations_without_gain);
  checkpoint::Sums& sums = *state.mutable_epoch_sums();
  sums.set_loss(progress_.epoch.loss);
  sums.set_loss_weight(progress_.epoch.loss_weight);
  sums.set_samples(progress_.epoch.samples);
  sums.set_correct(progress_.epoch.correct);
  sums.set_correct5(progress_.epoch.correct5);
  sums.set_targets(progress_.epoch.targets);
  return state;
}

void Trainer::show(RankPhase phase) const {
  if (options_.status == nullptr) return;
  options_.status->step.store(progress_.step + (phase == RankPhase::train ? 1 : 0));
  options_.status->phase.store(phase);
}

}  // namespace dtrain
