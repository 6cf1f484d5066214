/* Download progress display and cancellation. */
#include "client/cli/data/download.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* gp_get_fetch() progress callback. Nonzero: cancel the download. */
static int download_progress(void *context, const char *file, uint64_t bytes, uint64_t total)
{
    download_view *view = context;

    /* measure each file's rate separately */
    if (strncmp(view->file, file, sizeof(view->file) - 1) != 0) {
        snprintf(view->file, sizeof(view->file), "%s", file);
        view->progress.first_ms = 0;
    }
    cli_progress_show(&view->progress, view->file, bytes, total);
    return cli_stop != 0;
}

gp_get_options download_begin(const cli_call *call, download_view *view, const char *url)
{
    cli_catch_interrupts();
    *view = (download_view){ .file = "" };
    cli_progress_begin(call, &view->progress, NULL);
    return (gp_get_options){ .url = url[0] != '\0' ? url : NULL,
                             .progress = view->progress.tell ? download_progress : NULL,
                             .context = view };
}

void download_end(const download_view *view)
{
    cli_progress_end(&view->progress);
}
