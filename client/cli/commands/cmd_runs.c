/* `gradpool runs`: list and compare trainings. */
#include "client/cli/runs/runs_verbs.h"

static const gp_param runs_params[] = {
    { .name = "all",
      GP_PARAM_FIELD(runs_options, all),
      .help = "list: the newest 10000 runs instead of the newest 20" },
    { .name = "where",
      GP_PARAM_FIELD(runs_options, where),
      .repeats = true,
      .placeholder = "NAME=VALUE",
      .help = "list: only runs whose column or training option has the value; also !=, <, <=, >, >=; "
              "repeatable" },
    { .name = "sort",
      GP_PARAM_FIELD(runs_options, sort),
      .placeholder = "NAME",
      .help = "list: sort by a column or training option; the best accuracy first, otherwise the smallest "
              "value; -NAME reverses the order" },
    { .name = "csv",
      GP_PARAM_FIELD(runs_options, csv),
      .help = "list: print all columns and training options as CSV" },
    { .name = "plot",
      GP_PARAM_FIELD(runs_options, plot),
      .placeholder = "FILE.png",
      .help = "compare: draw the validation curves of the first eight runs" },
    CLI_JSON_PARAM(runs_options),
    CLI_COMMON_PARAMS(runs_options),
    { 0 },
};

static const cli_verb runs_verbs[] = {
    { "list", "[RUN...]", "list runs, the newest first; also without `list`", 0, RUNS_COMPARED_MAX,
      runs_list },
    { "compare", "RUN RUN...", "show the options that differ, and the results", 2, RUNS_COMPARED_MAX,
      runs_compare },
    { "note", "RUN TEXT", "store a note with a run; \"\" removes it", 2, 2, runs_note },
    { 0 },
};

const cli_command cli_command_runs = {
    .name = "runs",
    .summary = "list and compare trainings",
    .description =
        "Show the trainings that used the pool, from an index in the pool's state directory. RUN is a number "
        "of the list, `latest`, or a run folder, which need not be in the index. The list shows the accuracy "
        "and loss of the last validation, or of the best one if a training that keeps the best weights has "
        "ended.\n\n"
        "The state is `running`, `completed`, `stopped` (Ctrl-C), `stopped early` (validation patience), "
        "`failed`, `killed`: the process ended without a result, `queued`: a job on a cluster waits for its "
        "next attempt, or `unreadable`: a file of the run cannot be read. Runs whose folder was removed are "
        "not listed. No pool is started.",
    .examples = "  gradpool runs\n"
                "  gradpool runs --where network=lenet --where 'accuracy>=0.9' --sort accuracy\n"
                "  gradpool runs compare 38 40 41 --plot curves.png\n"
                "  gradpool runs note 40 'the one for the talk'\n"
                "  gradpool runs --all --csv > runs.csv\n",
    .options = runs_params,
    .options_bytes = sizeof(runs_options),
    .words_max = RUNS_COMPARED_MAX + 1,
    .verbs = runs_verbs,
    .run = runs_list,
};
