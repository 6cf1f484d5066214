/* home.h -- `gradpool` alone: the state of the pool in a few lines, and what to do next. */
#ifndef GP_CLI_HOME_H
#define GP_CLI_HOME_H

int cli_home(void);

#endif
