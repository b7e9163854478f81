// The report of a run.

import { readData } from "./data.js";
import { showReport } from "./report.js";

showReport(readData());
