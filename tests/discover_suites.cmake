# Read by ctest before it runs: one test for each suite of a program, whose tests share a process. `program`, `name`, `label`,
# `whole` and `results` are set. What each test of a suite gave stands in RESULTS/NAME.SUITE.xml. If `whole` is true there is
# one test, NAME, for all suites.
if(NOT EXISTS "${program}")
  add_test("${name}.NOT_BUILT" "${program}")
  set_tests_properties("${name}.NOT_BUILT" PROPERTIES LABELS "${label}")
  return()
endif()
if(whole)
  add_test("${name}" "${program}" "--gtest_output=xml:${results}/${name}.xml")
  set_tests_properties("${name}" PROPERTIES TIMEOUT 900 LABELS "${label}" ENVIRONMENT OMP_WAIT_POLICY=passive COST 10)
  return()
endif()
# Suites of more than 14 s, which start first where ctest has no times of an earlier run: none of them is the last to end.
set(longest backend.PointToPointFaults backend.BoundedStore parallel.Layouts/LoopMistakes parallel.Places/PublicLoops
            parallel.Leader parallel.Strategies/ShardedCodec sim.OnSim/EachStrategy sim.OnSim/OverNccl sim.SimFailures
            train.AverageOnMeshes train.ExpertTraining train.MeshPrecision train.Models/Equality train.Models/LongEquality
            train.OnMeshes/Rule train.SavesChangeNothing train.TensorParallelTraining train.WorldResume)
execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE failure TIMEOUT 300)
if(failure)
  message(FATAL_ERROR "${program} --gtest_list_tests: ${failure}")
endif()
string(REGEX REPLACE "[][;]" "" listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([A-Za-z0-9_/]+)\\.( |$)")
    continue()
  endif()
  set(suite "${CMAKE_MATCH_1}")
  string(REPLACE "/" "_" file "${name}.${suite}.xml")
  add_test("${name}.${suite}" "${program}" "--gtest_filter=${suite}.*" "--gtest_output=xml:${results}/${file}")
  # Several suites run at a time: OpenMP threads that spin would take the processors of the others. Long suites, which
  # are among these, start before the torch-free tests.
  set(cost 10)
  list(FIND longest "${name}.${suite}" place)
  if(place GREATER -1)
    set(cost 20)
  endif()
  set_tests_properties("${name}.${suite}" PROPERTIES TIMEOUT 900 LABELS "${label}" ENVIRONMENT OMP_WAIT_POLICY=passive
                                                     COST ${cost})
endforeach()
