/* download.h -- the progress of a download on the terminal. */
#ifndef GP_CLI_DOWNLOAD_H
#define GP_CLI_DOWNLOAD_H

#include <stdint.h>

#include "client/cli/cli.h"
#include "common/data/download/get.h"

typedef struct download_view {
    cli_progress progress;
    char file[128]; /* being downloaded */
} download_view;

/* Return options for gp_get_fetch() that show progress and stop at Ctrl-C.  url: a mirror, or "". */
gp_get_options download_begin(const cli_call *call, download_view *view, const char *url);
void download_end(const download_view *view); /* removes the line */

#endif
