/* Draw the live picture of a training in another process from facts.json and metrics.jsonl. */
#include "client/cli/jobs/job_view.h"

#include <stdint.h>

#include "client/cli/view.h"
#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"

/* Reader state of one training. */
struct job_view {
    run_lines *lines;
    gp_view *picture;
};

job_view *job_view_new(const char *folder, FILE *out)
{
    gp_train_info info;
    job_view *view = NULL;

    if (run_info_read(&info, folder) && info.steps_per_epoch > 0 && info.epochs > 0)
        view = gp_calloc(1, sizeof(*view));
    if (view == NULL)
        return NULL;
    info.workers = 1; /* metrics.jsonl contains the steps of rank 0 only */
    view->lines = run_lines_new(folder, "metrics.jsonl");
    view->picture = view_new(&(view_options){ .out = out, .live = true, .frequency = UINT32_MAX });
    if (view->lines == NULL || view->picture == NULL) {
        job_view_free(view);
        return NULL;
    }
    view_begin(view->picture, &info);
    return view;
}

/* Show one line of metrics.jsonl. */
static void show_line_of(job_view *view, const char *text, size_t bytes)
{
    run_line line;

    if (!run_line_parse(&line, text, bytes))
        return;
    if (line.kind == RUN_LINE_STEP)
        view_step(view->picture, &line.step);
    else if (line.kind == RUN_LINE_VALIDATION)
        view_check(view->picture, &line.validation);
    else if (line.kind == RUN_LINE_RESCALE)
        view_regroup(view->picture, &line.rescale);
    run_line_deinit(&line);
}

bool job_view_feed(job_view *view)
{
    const char *text;
    size_t bytes;

    while ((text = run_lines_next(view->lines, &bytes)) != NULL)
        show_line_of(view, text, bytes);
    return run_lines_replaced(view->lines);
}

void job_view_free(job_view *view)
{
    if (view == NULL)
        return;
    if (view->picture != NULL)
        view_free(view->picture);
    run_lines_free(view->lines);
    gp_free(view);
}
