/* Download progress display. */
#ifndef GP_CLI_DOWNLOAD_H
#define GP_CLI_DOWNLOAD_H

#include <stdint.h>

#include "client/cli/cli.h"
#include "common/data/download/get.h"

/* Progress line, and the file that it shows. */
typedef struct download_view {
    cli_progress progress;
    char file[128]; /* current file */
} download_view;

/* Return options for gp_get_fetch() that show the progress and cancel on Ctrl-C.
 *   url  mirror; "": default */
gp_get_options download_begin(const cli_call *call, download_view *view, const char *url);

/* Erase the progress line. */
void download_end(const download_view *view);

#endif
